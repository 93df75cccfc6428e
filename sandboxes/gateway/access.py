"""Who may do what: each route names the keys that open it."""

from pathlib import Path

from starlette.requests import Request

from sandboxes.gateway import keys
from sandboxes.gateway.errors import Unauthorized
from sandboxes.gateway.sessions import Session, Sessions


class Access:
    """The operator key and the sessions' keys."""

    def __init__(self, operator_key: Path, sessions: Sessions) -> None:
        self._path = operator_key
        self._sessions = sessions
        self.operator_key = keys.operator_key(operator_key)

    def operator(self, request: Request) -> None:
        """Unauthorized where the request does not carry the operator key."""
        if not self.is_operator(request):
            raise Unauthorized(f"this route needs the operator key, kept in {self._path}")

    def is_operator(self, request: Request) -> bool:
        return keys.same(keys.bearer(dict(request.headers)), self.operator_key)

    async def session(self, request: Request, *allowed: str) -> Session:
        """The session of the request's key. Unauthorized where that key is of a kind that is not `allowed`."""
        session, kind = await self._sessions.by_key(keys.bearer(dict(request.headers)))
        if kind not in allowed:
            raise Unauthorized(f"this route needs the session's {' or '.join(allowed)} key, not its {kind} key")
        return session
