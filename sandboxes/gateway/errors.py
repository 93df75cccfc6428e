"""Errors with an HTTP status, in OpenAI's form. One flat family; each text names the cause and, if any, the remedy."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class ErrorDetail(BaseModel):
    """What went wrong: `message` names the cause and, where there is one, the remedy."""

    model_config = ConfigDict(extra="forbid")

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """OpenAI's form of an error."""

    model_config = ConfigDict(extra="forbid")

    error: ErrorDetail


class GatewayError(Exception):
    """Something the caller is told. `retry`: whether the same request may work later; SDKs read it in a header."""

    status = 500
    kind = "server_error"
    retry = False

    def __init__(
        self, message: str, *, param: str | None = None, code: str | None = None, retry_after_s: int = 1
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
        self.retry_after_s = retry_after_s

    @property
    def body(self) -> dict[str, Any]:
        """OpenAI's error body."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}

    @property
    def headers(self) -> dict[str, str]:
        """`x-should-retry` keeps OpenAI's SDK from retrying a 409 it would only meet again."""
        if self.retry:
            return {"x-should-retry": "true", "Retry-After": str(self.retry_after_s)}
        return {"x-should-retry": "false"}


class BadRequest(GatewayError):
    """The request cannot be served as it is."""

    status = 400
    kind = "invalid_request_error"


class Unauthorized(GatewayError):
    """No key, or a key that does not open this route."""

    status = 401
    kind = "authentication_error"


class NotFound(GatewayError):
    """An unknown session, model or path."""

    status = 404
    kind = "not_found_error"


class Conflict(GatewayError):
    """The session's state does not allow this."""

    status = 409
    kind = "conflict_error"


class Gone(GatewayError):
    """The session is sealed, or its record was pruned: it changes no more."""

    status = 410
    kind = "gone_error"


class TooLarge(GatewayError):
    """The body is over the limit."""

    status = 413
    kind = "invalid_request_error"


class Busy(GatewayError):
    """No room now; ask again after `Retry-After` seconds."""

    status = 429
    kind = "rate_limit_error"
    retry = True


class EngineTrouble(GatewayError):
    """The engine failed, hung or cannot be reached: the same request may work later."""

    status = 503
    kind = "engine_error"
    retry = True


class JournalTrouble(GatewayError):
    """The journal cannot be written, so that what was asked would not be kept: the same request may work later."""

    status = 503
    kind = "journal_error"
    retry = True


class Stopped(GatewayError):
    """The gateway starts no session until the operator has looked: asking again does not help."""

    status = 503
    kind = "stopped_error"


class Stopping(GatewayError):
    """This process is about to end and takes nothing new: the same request works at another, or at the next one."""

    status = 503
    kind = "stopping_error"
    retry = True


class EngineSilent(EngineTrouble):
    """The engine did not answer in time, which may pass by itself."""


class EngineRefused(BadRequest):
    """The engine says that the request is wrong, for example a prompt that is too long."""


class EngineSwapped(EngineTrouble):
    """The engine ended the call for a swap of its weights, which is no fault of its: the same request works in a moment."""
