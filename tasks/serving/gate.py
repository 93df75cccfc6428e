"""What a deployment tells the gateway before an engine: hold its calls back, let them on, believe its weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from tasks.serving.errors import EngineError

TIMEOUT_S = 30.0


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

    @contextmanager
    def held(self, engine_url: str, for_s: float) -> Iterator[None]:
        """While the block runs no call begins on that engine, for at most `for_s` seconds: we may die."""
        self._order("pause", engine_url, for_s=for_s)
        try:
            yield
        finally:
            self._order("resume", engine_url)

    def proven(self, engine_url: str, version: int) -> None:
        """That engine provably serves `version`, whoever started it and when."""
        self._order("proven", engine_url, version=version)

    def _order(self, what: str, engine_url: str, **more: Any) -> None:
        try:
            key = self._key.read_text().strip()
            headers = {"Authorization": f"Bearer {key}"}
            body = {"url": engine_url, **more}
            answer = self._client.post(f"/engines/{what}", json=body, headers=headers)
        except (FileNotFoundError, httpx.ConnectError):  # it was never started, or is down
            return
        except httpx.HTTPError as error:
            raise EngineError(
                f"the gateway at {self.url} did not take the order to {what} {engine_url}: {error}"
            ) from error
        if answer.status_code != 200:
            raise EngineError(
                f"the gateway at {self.url} refused the order to {what} {engine_url}: {answer.status_code} "
                f"{answer.text[:500]}"
            )
