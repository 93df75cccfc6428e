"""What episode code uses: start a session, hand its key to an agent, fetch the recorded calls."""

from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import quote

import httpx

from lakehouse.records import Call, Mode


class GatewayUnavailable(Exception):
    """The gateway or the engine behind it failed: an infrastructure failure, worth another try."""


class GatewayRefused(Exception):
    """The gateway understood and said no. `status` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


@dataclass(frozen=True)
class Session:
    """A started session. The model key may go into a box; the reward key never does."""

    session_id: str
    api_key: str = field(repr=False)
    reward_key: str = field(repr=False)


class GatewayClient:
    """Client of one gateway, for many episodes at once. Close it, or use it as an async context manager."""

    def __init__(self, base_url: str, operator_key: str, *, timeout_s: float = 60.0) -> None:
        self.base_url = base_url.rstrip("/")
        self._operator_key = operator_key
        limits = httpx.Limits(max_connections=256, max_keepalive_connections=64)
        self._http = httpx.AsyncClient(
            base_url=self.base_url,
            timeout=timeout_s,
            limits=limits,
            trust_env=False,
            verify=self.base_url.startswith("https"),
        )

    @property
    def openai_base_url(self) -> str:
        """What an OpenAI client takes as `base_url`."""
        return f"{self.base_url}/v1"

    async def start_session(self, task_id: str, *, mode: Mode = "policy") -> Session:
        """A new session. GatewayRefused: 409 where the served weights have no version, 429 where there is no room."""
        answer = await self._ask(
            "POST", "/rl/start_session", self._operator_key, {"task_id": task_id, "api_key": None, "mode": mode}
        )
        return Session(answer["session_id"], answer["api_key"], answer["reward_key"])

    async def end_session(self, session: Session) -> int:
        """End a session, cancelling its running calls; returns how many calls were answered. May be called twice."""
        answer = await self._ask("POST", "/rl/end_session", session.reward_key)
        return int(answer["interaction_count"])

    async def calls(self, session_id: str, *, episode_id: str, attempt_id: str) -> list[Call]:
        """Every dispatched call that is over, in order of dispatch, as rows."""
        answer = await self._ask("GET", f"/sessions/{quote(session_id)}/calls", self._operator_key)
        return [Call(**row, episode_id=episode_id, attempt_id=attempt_id) for row in answer["calls"]]

    async def set_reward(self, session: Session, reward: float, *, interaction_id: str | None = None) -> None:
        """Append a reward to a call; None is the last answered one."""
        await self._ask(
            "POST", "/rl/set_reward", session.reward_key, {"interaction_id": interaction_id, "reward": reward}
        )

    async def export(
        self,
        session_id: str,
        *,
        discount: float = 1.0,
        style: Literal["individual", "concat"] = "individual",
        drop_retry_orphans: bool = False,
    ) -> dict[str, Any]:
        """Rows by interaction id, see `export.trajectories`."""
        wanted = {
            "session_id": session_id,
            "discount": discount,
            "style": style,
            "drop_retry_orphans": drop_retry_orphans,
        }
        answer = await self._ask("POST", "/export_trajectories", self._operator_key, wanted)
        interactions: dict[str, Any] = answer["interactions"]
        return interactions

    async def health(self) -> dict[str, Any]:
        return await self._ask("GET", "/health", "")

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _ask(self, method: str, path: str, key: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            response = await self._http.request(method, path, json=body, headers=headers)
        except httpx.TransportError as error:
            raise GatewayUnavailable(
                f"the gateway at {self.base_url} does not answer: {type(error).__name__} {error}".rstrip()
            ) from error
        if response.status_code == 200:
            answer: dict[str, Any] = response.json()
            return answer
        message = _message(response)
        if response.status_code >= 500:
            raise GatewayUnavailable(f"{response.status_code} from {path}: {message}")
        raise GatewayRefused(response.status_code, message)


def _message(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return response.text[:500]
