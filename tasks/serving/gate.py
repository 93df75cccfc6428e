"""What a deployment tells the gateway before an engine: hold its calls back, let them on, believe its weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from tasks.serving.errors import EngineError

TIMEOUT_S = 30.0


@dataclass(frozen=True)
class EngineState:
    """One engine as the gateway sees it."""

    state: str
    version: str | None  # label of its weights
    reason: str | None  # why it takes no calls, where it takes none

    @property
    def takes_calls(self) -> bool:
        """Whether it does now, or will in a moment."""
        return self.state in ("serving", "draining", "paused")


class Gate:
    """One gateway's orders over its engines. A gateway that is not there has no calls to hold back."""

    def __init__(self, url: str, operator_key: Path) -> None:
        self.url = url.rstrip("/")
        self._key = operator_key
        self._client = httpx.Client(base_url=self.url, timeout=TIMEOUT_S, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def engines(self) -> list[str]:
        """The URLs of all engines behind the gateway; none where it is not there."""
        return list(self.states())

    def labels(self) -> dict[str, str | None]:
        """The label of the weights that each engine serves, as the gateway last saw it."""
        return {url: state.version for url, state in self.states().items()}

    def states(self) -> dict[str, EngineState]:
        """How each engine is."""
        return {
            str(one["url"]): EngineState(one["state"], one["weight_version"], one["reason"])
            for one in self._seen().get("engines", [])
        }

    def split(self) -> dict[str, Any] | None:
        """How new sessions are parted between two versions: champion, challenger, share; None where they are not."""
        found: dict[str, Any] | None = self._seen().get("split")
        return found

    def sessions(self, version: int) -> int:
        """How many open sessions keep to this version, while sessions are parted."""
        return int(self._seen().get("sessions", {}).get(str(version), 0))

    def part(self, champion: int, challenger: int, share: float, for_s: float) -> None:
        """A share of the new sessions for the challenger, the rest and all from before for the champion."""
        self._ask("POST", "/split", {"champion": champion, "challenger": challenger, "share": share, "for_s": for_s})

    def unsplit(self) -> None:
        """New sessions go to any engine again."""
        self._ask("POST", "/unsplit")

    @contextmanager
    def held(self, engine_url: str, for_s: float) -> Iterator[None]:
        """While the block runs no call begins on that engine, for at most `for_s` seconds: we may die."""
        self._order("pause", engine_url, for_s=for_s)
        try:
            yield
        finally:
            self._order("pause", engine_url, for_s=0)  # not `resume`: an engine that drains goes on draining

    def proven(self, engine_url: str, version: int) -> None:
        """That engine provably serves `version`, whoever started it and when."""
        self._order("proven", engine_url, version=version)

    def doubted(self, engine_url: str) -> None:
        """Nobody knows what that engine serves: it takes no calls of policies until it is proven again."""
        self._order("doubted", engine_url)

    def _seen(self) -> dict[str, Any]:
        """How everything is, empty where the gateway is not there."""
        answer = self._ask("GET", "")
        return answer.json() if answer else {}

    def _order(self, what: str, engine_url: str, **more: Any) -> None:
        self._ask("POST", f"/{what}", {"url": engine_url, **more})

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> httpx.Response | None:
        try:
            headers = {"Authorization": f"Bearer {self._key.read_text().strip()}"}
            answer = self._client.request(method, f"/engines{path}", json=body, headers=headers)
        except (FileNotFoundError, httpx.ConnectError):  # it was never started, or is down
            return None
        except httpx.HTTPError as error:
            raise EngineError(f"the gateway at {self.url} did not answer {method} /engines{path}: {error}") from error
        if answer.status_code != 200:
            raise EngineError(
                f"the gateway at {self.url} refused {method} /engines{path}: {answer.status_code} {answer.text[:500]}"
            )
        return answer
