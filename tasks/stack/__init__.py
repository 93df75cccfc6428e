"""The local stack: Prefect, MLflow, engine, gateway and worker as supervised processes."""
