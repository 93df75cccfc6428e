"""What a run shows in Prefect's UI besides its state. A display: where the server is away or refuses it, the work goes on.

For a retry would do the work again, and a run that fails for its display is one more thing to explain. The log has a warning.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import httpx
from prefect.exceptions import PrefectException

log = logging.getLogger(__name__)

AWAY = (httpx.HTTPError, PrefectException)


def show(create: Callable[..., Any], **what: Any) -> None:
    """Create an artifact with Prefect's `create`, such as `create_table_artifact`. From synchronous code."""
    try:
        create(**what)
    except AWAY as error:
        _missing(what, error)


async def ashow(create: Callable[..., Awaitable[Any]], **what: Any) -> UUID | None:
    """The same from asynchronous code; the artifact's id, or None where it could not be shown."""
    try:
        made = await create(**what)
    except AWAY as error:
        _missing(what, error)
        return None
    return made if isinstance(made, UUID) else None


def _missing(what: dict[str, Any], error: Exception) -> None:
    log.warning("%s could not be shown in Prefect: %s", what.get("key") or what.get("description"), error)
