"""The local stack: Prefect, MLflow, engine, gateway and worker as supervised processes."""

from tasks.stack.settings import Settings
from tasks.stack.stack import StackError, State, down, status, up

__all__ = ["Settings", "StackError", "State", "down", "status", "up"]
