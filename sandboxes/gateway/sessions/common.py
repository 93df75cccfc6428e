"""What all workers of a gateway must know together about sessions: how many are open, tickets, how the last ones ended."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter

from sandboxes.gateway.sessions.share import ALONE, Share
from sandboxes.gateway.sessions.shared import SharedFile


class Common(BaseModel):
    """Moments are seconds since the epoch."""

    model_config = ConfigDict(extra="forbid")

    open: dict[int, int] = {}  # sessions, by worker
    tickets: list[float] = []  # when each granted start expires
    ended: list[tuple[str, bool]] = []  # the last sessions to end: id, whether it is lost to training
    stopped: str | None = None  # why no more sessions are started


CommonFile = SharedFile[Common]


def common_file(folder: Path, share: Share = ALONE) -> CommonFile:
    """The one of a gateway's folder. It outlives the processes, as a stop must; for a lone process that is all it is for."""
    lasting = (lambda common: common.stopped) if share.of == 1 else None
    return SharedFile(folder / "sessions.json", TypeAdapter(Common), Common(), lasting)
