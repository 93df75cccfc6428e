"""What a model solves: statements, environments, graders."""
