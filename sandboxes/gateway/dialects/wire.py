"""What the dialects share: strict JSON, server-sent events, the headers that tell a retry."""

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypedDict, TypeVar

import orjson
from pydantic import BaseModel, BeforeValidator, ValidationError

from sandboxes.gateway.errors import BadRequest, NotFound

Shape = TypeVar("Shape", bound=BaseModel)


def _truth_value(value: Any) -> Any:
    if value is not None and not isinstance(value, bool):
        raise ValueError("Input should be a valid boolean")
    return value


Off = Annotated[Literal[False], BeforeValidator(_truth_value)]  # the literal alone takes a 0 too


class Origin(TypedDict):
    """What tells one sending of a request from another, as `calls.Request` takes it."""

    body_digest: str
    idempotency_key: str | None
    is_retry: bool


def origin(raw: bytes, headers: Mapping[str, str]) -> Origin:
    """Digest of the body, and what the client's headers say. The Stainless SDKs (OpenAI, Anthropic) count retries."""
    return {
        "body_digest": hashlib.sha256(raw).hexdigest(),
        "idempotency_key": headers.get("idempotency-key") or None,
        "is_retry": headers.get("x-stainless-retry-count", "0") not in ("", "0"),
    }


def part_of(sent: Origin, at: int) -> Origin:
    """The origin of a part of a request, so that a retry finds the answer of each of its parts."""
    key = sent["idempotency_key"]
    return {
        "body_digest": hashlib.sha256(f"{sent['body_digest']}/{at}".encode()).hexdigest(),
        "idempotency_key": None if key is None else f"{key}/{at}",
        "is_retry": sent["is_retry"],
    }


def decode(raw: bytes, shape: type[Shape]) -> Shape:
    """The validated body. BadRequest names the parameter at fault."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        body = _spelled_out(raw)
    return checked(body, shape)


def _spelled_out(raw: bytes) -> Any:
    """As Python's own parser reads it, which takes more (integers of any size) and says better what is wrong."""
    try:
        body = json.loads(raw, parse_constant=_no_constant)
        json.dumps(body, ensure_ascii=False).encode()  # half a surrogate pair is valid JSON but no text
    except ValueError as error:
        raise BadRequest(f"the body is not valid JSON: {error}") from error
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None
    return body


def checked(value: Any, shape: type[Shape], where: str = "") -> Shape:
    """`value` as `shape`. BadRequest names the parameter at fault, `where` being the way to `value`."""
    try:
        return shape.model_validate(value, strict=True)
    except ValidationError as error:
        # Of a union's complaints the deepest is about the alternative that was meant.
        worst = max(error.errors(), key=lambda one: (len(one["loc"]), one["type"] == "extra_forbidden"))
        inside = [str(step) for step in worst["loc"] if "[" not in str(step) and step != "str"]
        param = ".".join([where, *inside] if where else inside) or "body"
        text = f"Unknown parameter: '{param}'" if worst["type"] == "extra_forbidden" else f"'{param}': {worst['msg']}"
        served = f" (served parameters: {', '.join(shape.model_fields)})" if len(worst["loc"]) == 1 else ""
        raise BadRequest(text + served, param=param) from error


def tagged(value: Any, shapes: Mapping[str, type[BaseModel]], where: str, default: str | None = None) -> Any:
    """`value` as the shape that its `type` names. BadRequest says which types are served."""
    kind = value.get("type", default) if isinstance(value, dict) else None
    shape = shapes.get(kind) if isinstance(kind, str) else None
    if shape is None:
        served = ", ".join(shapes)
        raise BadRequest(f"'{where}.type': {kind!r} is not served; served: {served}", param=f"{where}.type")
    return checked(value, shape, where)


def check_model(asked: str, served: str) -> None:
    """NotFound where another model is asked for."""
    if asked != served:
        raise NotFound(
            f"model {asked!r} is not served here; this gateway serves {served!r}", param="model", code="model_not_found"
        )


def thinking(effort: str | None) -> dict[str, Any]:
    """Template options for a reasoning effort: what the engine makes of `reasoning_effort`, said to the template."""
    return {} if effort is None else {"reasoning_effort": effort, "enable_thinking": effort != "none"}


def event(value: Mapping[str, Any], name: str | None = None) -> bytes:
    """One server-sent event."""
    data = b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"
    return f"event: {name}\n".encode() + data if name else data


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
