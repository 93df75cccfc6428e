"""What a run tells: metrics, pictures, MLflow."""
