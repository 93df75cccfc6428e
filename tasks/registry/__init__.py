"""MLflow versions, aliases and lineage."""
