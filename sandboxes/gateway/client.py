"""What episode code and applications use: start a session, hand its key to an agent, give rewards, fetch what was recorded."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import quote

import httpx

from lakehouse.records import Call, Mode

LONGEST_PAUSE_S = 15.0  # between two tries to start a session
# What passes by itself: no room (429), and weights that are being swapped.
OVER = ("session_pruned", "session_shredded", "session_unreadable")  # what is sealed, and more than that
PASSING = ("weights_unlabelled", "engine_paused", "engine_stale")


class GatewayUnavailable(Exception):
    """The gateway or the engine behind it failed: an infrastructure failure, worth another try."""


class GatewayRefused(Exception):
    """The gateway understood and said no. `status` is the HTTP status, `code` the gateway's own word for the reason."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.code = code


@dataclass(frozen=True)
class Failure:
    """An answer that is none: what it says, and when to ask again."""

    status: int
    message: str
    code: str | None
    retry_after_s: float

    @property
    def passes(self) -> bool:
        """Whether waiting helps: no room now, or weights that are being swapped."""
        return self.status == 429 or self.code in PASSING

    def error(self, path: str) -> Exception:
        """As an exception."""
        if self.status >= 500:
            return GatewayUnavailable(f"{self.status} from {path}: {self.message}")
        return GatewayRefused(self.status, self.message, self.code)


@dataclass(frozen=True)
class Session:
    """A started session. The model key may go into a box; the reward key never does."""

    session_id: str
    api_key: str = field(repr=False)
    reward_key: str = field(repr=False)


class GatewayClient:
    """Client of one gateway, for many episodes at once. Close it, or use it as an async context manager.

    The operator key may be given as a function, which is asked again where the key is refused: so a run outlives the
    key's rotation. An application that only gives rewards needs none.
    """

    def __init__(self, base_url: str, operator_key: str | Callable[[], str] = "", *, timeout_s: float = 60.0) -> None:
        self.base_url = base_url.rstrip("/")
        self._new_operator_key = operator_key if callable(operator_key) else None
        self._operator_key = operator_key() if callable(operator_key) else operator_key
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

    async def start_session(
        self,
        task_id: str,
        *,
        mode: Mode = "policy",
        limits: Mapping[str, float] | None = None,
        key_life_s: float | None = None,
        subject: str | None = None,
        version: int | None = None,
        wait_s: float = 0.0,
    ) -> Session:
        """A new session with budgets (`budget.Limits`), whose keys end after `key_life_s` seconds.

        `subject` names whose data it will hold, for erasure. `version` is the one of the weights that shall answer all of
        its calls: GatewayRefused, 409, where no engine serves it.

        Where there is no room, or the served weights are being swapped, it is waited for up to `wait_s` seconds; then
        GatewayUnavailable says what was waited for. Without `wait_s` these are GatewayRefused at once: 429, 409.
        """
        wanted = {
            "task_id": task_id,
            "mode": mode,
            "limits": limits or {},
            "key_life_s": key_life_s,
            "subject": subject,
            "version": version,
        }
        begun, pause = time.monotonic(), 0.5
        while True:
            answer = await self._try("POST", "/rl/start_session", None, wanted)
            if not isinstance(answer, Failure):
                return Session(answer["session_id"], answer["api_key"], answer["reward_key"])
            if not answer.passes or wait_s <= 0:
                raise answer.error("/rl/start_session")
            waited = time.monotonic() - begun
            pause = min(max(pause, answer.retry_after_s), LONGEST_PAUSE_S)
            if waited + pause > wait_s:
                raise GatewayUnavailable(f"no session could be started; waited {waited:.0f} s for: {answer.message}")
            await asyncio.sleep(pause)
            pause *= 2

    async def end_session(self, session: Session) -> int:
        """End a session, cancelling its running calls; returns how many calls were answered. May be called twice."""
        answer = await self._ask("POST", "/rl/end_session", session.reward_key)
        return int(answer["interaction_count"])

    async def seal_sessions(self, session_ids: Iterable[str]) -> int:
        """Close the records of sessions, ending those that are open; they can still be read. Returns how many.

        May be called twice. A session whose record was pruned or shredded was sealed before.
        """
        return await self._each("/rl/seal_session", session_ids)

    async def shred_sessions(self, session_ids: Iterable[str]) -> int:
        """Seal sessions whose episodes have landed and make their records unreadable for good. May be called twice."""
        return await self._each("/rl/shred_session", session_ids)

    async def _each(self, path: str, session_ids: Iterable[str]) -> int:
        count = 0
        for session_id in session_ids:
            try:
                await self._ask("POST", path, None, {"session_id": session_id})
            except GatewayRefused as refused:
                if refused.code not in OVER:
                    raise
            count += 1
        return count

    async def closed_sessions(self) -> list[dict[str, Any]]:
        """Every session that has ended or is sealed and can still be read: session_id, task_id, mode, state, reason, times,
        number of rewards."""
        found: list[dict[str, Any]] = []
        after: int | None = 0
        while after is not None:
            page = await self._ask("GET", f"/sessions?after={after}", None)
            found += page["sessions"]
            after = page["next"]
        return found

    async def calls(self, session_id: str, *, episode_id: str, attempt_id: str) -> list[Call]:
        """Every dispatched call that is over, in order of dispatch, as rows."""
        answer = await self._ask("GET", f"/sessions/{quote(session_id)}/calls", None)
        return [Call(**row, episode_id=episode_id, attempt_id=attempt_id) for row in answer["calls"]]

    async def report(self, session_id: str) -> dict[str, Any]:
        """State, capture, budgets, keys and tree of a session, see `report.report`."""
        return await self._ask("GET", f"/sessions/{quote(session_id)}", None)

    async def set_reward(
        self,
        session: Session,
        reward: float,
        *,
        interaction_id: str | None = None,
        scope: Literal["call", "episode"] = "call",
        labeller: str = "",
        reason: str = "",
    ) -> None:
        """Append a reward, to a call (None is the last answered one) or to the whole episode; the newest counts.

        Also after the session's end, until it is sealed.
        """
        given = {
            "interaction_id": interaction_id,
            "reward": reward,
            "scope": scope,
            "labeller": labeller,
            "reason": reason,
        }
        await self._ask("POST", "/rl/set_reward", session.reward_key, given)

    async def rewards(self, session_id: str) -> list[dict[str, Any]]:
        """Every reward of a session as it was given, oldest first."""
        answer = await self._ask("GET", f"/sessions/{quote(session_id)}/rewards", None)
        rows: list[dict[str, Any]] = answer["rewards"]
        return rows

    async def rotate_key(
        self, session: Session, *, kind: Literal["model", "reward"] = "model", key_life_s: float | None = None
    ) -> Session:
        """The session with a new key of this kind; the old one opens nothing any more."""
        wanted = {"session_id": session.session_id, "kind": kind, "key_life_s": key_life_s}
        answer = await self._ask("POST", "/rl/rotate_key", None, wanted)
        return replace(session, **{"api_key" if kind == "model" else "reward_key": answer["key"]})

    async def rotate_operator_key(self) -> str:
        """Replace the operator key, in its file and for this client; returns the new one."""
        answer = await self._ask("POST", "/rl/rotate_operator_key", None)
        self._operator_key = str(answer["operator_key"])
        return self._operator_key

    async def reset_stop(self) -> str | None:
        """Let sessions start again after too many were lost to training; returns why they did not."""
        was: str | None = (await self._ask("POST", "/rl/reset_stop", None))["was"]
        return was

    async def prune(self, *, sealed_for_s: float) -> tuple[int, int]:
        """Delete the records of sessions that were sealed so long ago; how many sessions and calls."""
        answer = await self._ask("POST", "/rl/prune", None, {"sealed_for_s": sealed_for_s})
        return int(answer["sessions"]), int(answer["calls"])

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
        answer = await self._ask("POST", "/export_trajectories", None, wanted)
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

    async def _ask(self, method: str, path: str, key: str | None, body: dict[str, Any] | None = None) -> dict[str, Any]:
        answer = await self._try(method, path, key, body)
        if isinstance(answer, Failure):
            raise answer.error(path)
        return answer

    async def _try(
        self, method: str, path: str, key: str | None, body: dict[str, Any] | None = None
    ) -> dict[str, Any] | Failure:
        """`key` None: the operator's."""
        used = self._operator_key if key is None else key
        response = await self._send(method, path, used, body)
        if response.status_code == 401 and key is None and self._new_operator_key:
            if used == self._operator_key:  # else another request has fetched the new one
                self._operator_key = self._new_operator_key()
            response = await self._send(method, path, self._operator_key, body)
        if response.status_code == 200:
            answer: dict[str, Any] = response.json()
            return answer
        return _failure(response)

    async def _send(self, method: str, path: str, key: str, body: dict[str, Any] | None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            return await self._http.request(method, path, json=body, headers=headers)
        except httpx.TransportError as error:
            raise GatewayUnavailable(
                f"the gateway at {self.base_url} does not answer: {type(error).__name__} {error}".rstrip()
            ) from error


def _failure(response: httpx.Response) -> Failure:
    asked = response.headers.get("retry-after", "")
    wait = float(asked) if asked.isdigit() else 0.0
    try:
        error = response.json()["error"]
        return Failure(response.status_code, str(error["message"]), error.get("code"), wait)
    except (ValueError, KeyError, TypeError, AttributeError):
        return Failure(response.status_code, response.text[:500], None, wait)
