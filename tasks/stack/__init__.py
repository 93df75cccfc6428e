"""The local stack: Prefect, MLflow, engine, gateway and worker as supervised processes."""

from tasks.stack.settings import Settings
from tasks.stack.stack import down, status, up
from tasks.stack.starting import StackError, State

__all__ = ["Settings", "StackError", "State", "down", "status", "up"]
