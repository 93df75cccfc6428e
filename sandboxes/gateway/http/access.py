"""Who may do what: each route names the keys that open it."""

from pathlib import Path

from starlette.requests import Request

from sandboxes.gateway.errors import Unauthorized
from sandboxes.gateway.sessions.keys import OperatorKey, bearer, rotate, same
from sandboxes.gateway.sessions.sessions import Session, Sessions


class Access:
    """The operator key and the sessions' keys."""

    def __init__(self, operator_key: Path, sessions: Sessions) -> None:
        self._key = OperatorKey(operator_key)
        self._sessions = sessions

    @property
    def operator_key(self) -> str:
        """As the file has it now."""
        return self._key.value

    def operator(self, request: Request) -> None:
        """Unauthorized where the request does not carry the operator key, or the key file cannot be used: then nobody does."""
        try:
            good = same(bearer(request.headers), self.operator_key)
        except (OSError, ValueError) as error:
            raise Unauthorized(f"the operator key cannot be read: {error}") from error
        if not good:
            raise Unauthorized(f"this route needs the operator key, kept in {self._key.path}")

    def is_operator(self, request: Request) -> bool:
        """Whether it may do what the operator may. A key file that cannot be used is no matter of other keys."""
        try:
            self.operator(request)
        except Unauthorized:
            return False
        return True

    def rotate_operator_key(self) -> str:
        """A new operator key, which is in the file already; the old one opens nothing any more."""
        return rotate(self._key.path)

    async def session(self, request: Request, *allowed: str) -> Session:
        """The session of the request's key. Unauthorized where that key has none of the `allowed` scopes."""
        session, scopes = await self._sessions.by_key(bearer(request.headers))
        if not scopes & set(allowed):
            raise Unauthorized(f"this route needs the session's {' or '.join(allowed)} key, not its {min(scopes)} key")
        return session
