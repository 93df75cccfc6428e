"""The gateway's settings, checked before anything starts."""

import ipaddress
import socket
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from lakehouse.home import Home


class Settings(BaseModel):
    """What one gateway process serves."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    engine: str  # base URL
    home: Path
    model: str  # the served model's name, the only one callers may ask for
    allow_upstream: list[str] = Field(default_factory=list)  # hosts beyond loopback
    max_sessions: int = Field(default=256, ge=1)  # open at once
    max_calls: int = Field(default=256, ge=1)  # running at once
    call_deadline_s: float = Field(default=600.0, gt=0)  # one model call, from render to answer
    idle_session_s: float = Field(default=3600.0, gt=0)  # a session of a dead worker is reclaimed after this

    @property
    def journal(self) -> Path:
        return Home(self.home).gateway / "journal.db"

    @property
    def operator_key(self) -> Path:
        return Home(self.home).keys / "operator"


def check_upstream(url: str, allowed: list[str]) -> None:
    """Refuse an engine that is not on this machine unless its host is listed. ValueError with cause and remedy."""
    parts = urlsplit(url)
    host = parts.hostname
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError(f"engine URL {url!r} is not an http(s) URL with a host")
    if host in allowed:
        return
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, parts.port or 80, type=socket.SOCK_STREAM)}
    except socket.gaierror as error:
        raise ValueError(f"engine host {host!r} does not resolve: {error}") from error
    outside = sorted(address for address in found if not ipaddress.ip_address(address.split("%")[0]).is_loopback)
    if outside:
        raise ValueError(
            f"engine host {host!r} is {', '.join(outside)}, not this machine; "
            f"if that is meant, start with --allow-upstream {host}"
        )
