"""MLflow versions, aliases and lineage (`versions`), and the watcher of the promoted version (`watch`).

Nothing is imported here: MLflow takes a second and 150 MB, and the watcher does without it.
"""
