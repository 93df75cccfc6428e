"""A share of the sessions for one version of the weights, the rest for another: the traffic split of a canary release."""

import hashlib
import time

from pydantic import BaseModel, ConfigDict, Field

from sandboxes.gateway.errors import EngineTrouble

NOT_SERVED = "version_not_served"


class Split(BaseModel):
    """Which version new sessions get. A session keeps to its version from its first call to its last."""

    model_config = ConfigDict(extra="forbid")

    champion: int = Field(ge=0)
    challenger: int = Field(ge=0)
    share: float = Field(ge=0, le=1)  # of the new sessions, for the challenger
    until: (
        float  # seconds since the epoch; then no session goes to the challenger any more: who watches it may have died
    )

    def version(self, session_id: str) -> int:
        """What a new session gets: by its id alone, so that every process decides alike."""
        held = self.share if time.time() < self.until else 0.0
        return self.challenger if fraction(session_id) < held else self.champion


def fraction(session_id: str) -> float:
    """A number from 0 to 1 that stands for a session, even over sessions."""
    digest = hashlib.blake2b(session_id.encode(), digest_size=8, person=b"split").digest()
    return int.from_bytes(digest, "big") / 2**64


def check_served(version: int | None, labels: set[str]) -> None:
    """EngineTrouble where a session of this version was answered by weights with another label: it must never be silent."""
    if version is not None and labels != {str(version)}:
        others = ", ".join(sorted(labels - {str(version)})) or "weights that it does not name"
        raise EngineTrouble(
            f"this session is of weight version {version} and the engine answered with {others}: its weights were swapped "
            "meanwhile; ask again, and it goes to an engine that serves its version",
            code=NOT_SERVED,
        )
