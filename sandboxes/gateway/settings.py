"""The gateway's settings, checked before anything starts."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from lakehouse.home import Home
from sandboxes.gateway.engines.facts import Route
from sandboxes.gateway.engines.guard import Guard


class Settings(BaseModel):
    """What one gateway process serves."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    engine: str  # base URL
    more_engines: list[str] = Field(default_factory=list)  # further ones with the same model, version and template
    home: Path
    model: str  # the served model's name, the only one callers may ask for
    allow_upstream: list[str] = Field(default_factory=list)  # host names, addresses and networks beyond this machine
    token_route: Literal["auto"] | Route = "auto"  # noqa: S105 - how an engine gives tokens; auto asks it what it has
    max_sessions: int = Field(default=256, ge=1)  # open at once
    max_calls: int = Field(default=256, ge=1)  # running at once
    call_deadline_s: float = Field(default=600.0, gt=0)  # one model call, from render to answer
    idle_session_s: float = Field(default=3600.0, gt=0)  # a session of a dead worker is reclaimed after this
    traces: bool = False  # OpenTelemetry spans, see `tracing`
    max_mask_fraction: float = Field(default=0.5, ge=0, le=1)  # of the last 20 sessions; beyond, no more are started
    model_key_rewards: bool = False  # AReaL's clients reward with the model key; a policy could reward itself

    @property
    def engines(self) -> list[str]:
        return [self.engine, *self.more_engines]

    @property
    def orders(self) -> Path:
        """What operators ordered about engines."""
        return Home(self.home).gateway / "engines.json"

    @property
    def journal(self) -> Path:
        return Home(self.home).gateway / "journal.db"

    @property
    def session_keys(self) -> Path:
        """A key per session whose record can still be read."""
        return Home(self.home).keys / "sessions"

    @property
    def metrics_key(self) -> Path:
        return Home(self.home).keys / "metrics"

    @property
    def operator_key(self) -> Path:
        return Home(self.home).keys / "operator"


def check_upstream(url: str, allowed: list[str]) -> None:
    """Refuse an engine that is not on this machine unless it is listed. ValueError with cause and remedy."""
    Guard(url, allowed).check()
