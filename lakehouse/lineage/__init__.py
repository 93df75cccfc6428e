"""Where a model version comes from, what became of an episode, and what changed between two versions."""
