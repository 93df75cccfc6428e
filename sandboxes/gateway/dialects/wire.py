"""What the dialects share: strict JSON, server-sent events, the headers that tell a retry."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, TypedDict, TypeVar

from pydantic import BaseModel, ValidationError

from sandboxes.gateway.errors import BadRequest, NotFound

Shape = TypeVar("Shape", bound=BaseModel)


class Origin(TypedDict):
    """What tells one sending of a request from another, as `calls.Request` takes it."""

    body_digest: str
    idempotency_key: str | None
    is_retry: bool


def origin(raw: bytes, headers: Mapping[str, str]) -> Origin:
    """Digest of the body, and what the client's headers say. The Stainless SDKs (OpenAI, Anthropic) count retries."""
    return {
        "body_digest": hashlib.sha256(raw).hexdigest(),
        "idempotency_key": headers.get("idempotency-key"),
        "is_retry": headers.get("x-stainless-retry-count", "0") not in ("", "0"),
    }


def decode(raw: bytes, shape: type[Shape]) -> Shape:
    """The validated body. BadRequest names the parameter at fault."""
    try:
        body = json.loads(raw, parse_constant=_no_constant)
        json.dumps(body, ensure_ascii=False).encode()  # half a surrogate pair is valid JSON but no text
    except ValueError as error:
        raise BadRequest(f"the body is not valid JSON: {error}") from error
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None
    try:
        return shape.model_validate(body)
    except ValidationError as error:
        # Of a union's complaints the deepest is about the alternative that was meant.
        worst = max(error.errors(), key=lambda one: (len(one["loc"]), one["type"] == "extra_forbidden"))
        where = ".".join(str(step) for step in worst["loc"] if "[" not in str(step)) or "body"
        text = f"Unknown parameter: '{where}'" if worst["type"] == "extra_forbidden" else f"'{where}': {worst['msg']}"
        served = f" (served parameters: {', '.join(shape.model_fields)})" if len(worst["loc"]) == 1 else ""
        raise BadRequest(text + served, param=where) from error


def check_model(asked: str, served: str) -> None:
    """NotFound where another model is asked for."""
    if asked != served:
        raise NotFound(
            f"model {asked!r} is not served here; this gateway serves {served!r}", param="model", code="model_not_found"
        )


def event(value: Mapping[str, Any], name: str | None = None) -> bytes:
    """One server-sent event."""
    data = b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"
    return f"event: {name}\n".encode() + data if name else data


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
