"""What a run leaves on disk: checkpoints and the model's folder."""
