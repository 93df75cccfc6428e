"""Reading a request's body, within bounds and into a shape."""

from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from sandboxes.gateway.errors import BadRequest, TooLarge

BODY_LIMIT_BYTES = 16 << 20
Body = TypeVar("Body", bound=BaseModel)


async def read(request: Request) -> bytes:
    """The whole body. TooLarge over the limit."""
    raw = bytearray()
    async for part in request.stream():
        raw += part
        if len(raw) > BODY_LIMIT_BYTES:
            raise TooLarge(f"the body is larger than {BODY_LIMIT_BYTES >> 20} MiB")
    return bytes(raw)


async def parsed(request: Request, shape: type[Body]) -> Body:
    """The body as `shape`. BadRequest names the first field that is wrong and the fields there are."""
    try:
        return shape.model_validate_json(await read(request), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"]) or "body"
        raise BadRequest(f"'{where}': {first['msg']} (known: {', '.join(shape.model_fields)})", param=where) from error
