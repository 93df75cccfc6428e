"""The stack's gateway, as episode code and maintenance use it."""

from sandboxes.gateway.client import GatewayClient
from sandboxes.gateway.sessions.keys import operator_key
from tasks.stack.settings import Settings


def gateway_client(timeout_s: float = 60.0) -> GatewayClient:
    """A client with the operator key, which is read again where it was rotated. Close it."""
    settings = Settings()
    return GatewayClient(settings.gateway_url, lambda: operator_key(settings.operator_key), timeout_s=timeout_s)
