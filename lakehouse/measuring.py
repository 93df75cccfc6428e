"""Evidence that is measured after an episode has landed: who still needs it, writing it, and how far it reaches."""

from collections.abc import Sequence
from dataclasses import dataclass

from lakehouse import store
from lakehouse.erased import erased_among
from lakehouse.privacy.written import cleaned
from lakehouse.query import connect
from lakehouse.records import Evidence
from lakehouse.write import Writer

# Episodes that ended by the policy's own doing, with what this producer said of each; `where` is SQL by contract.
_CHOSEN = """
    with chosen as (
        select episode_id
        from episodes
        where status in ('ok', 'truncated', 'model_error') and (
            {where}
        )
    ),

    facts as (
        select episode_id, value ->> '$.status' as status
        from evidence
        where name = $1 and producer = $2
    )

    select chosen.episode_id, facts.status
    from chosen
    left join facts using (episode_id)
    order by episode_id
"""


@dataclass(frozen=True)
class Reach:
    """Episodes by what one producer has said of them. `missing`: nothing yet."""

    scored: int
    refused: int
    malformed: int
    missing: int

    @property
    def unscored(self) -> float:
        """Share of the episodes without a score; 0 where there is no episode."""
        total = self.scored + self.refused + self.malformed + self.missing
        return 1 - self.scored / total if total else 0.0


def unmeasured(lake: str | None, name: str, producer: str, *, where: str = "true") -> list[str]:
    """Trainable episodes among those that `where` (SQL over `episodes`) names without this producer's evidence `name`."""
    return [episode_id for episode_id, status in _chosen(lake, name, producer, where) if status is None]


def reach(lake: str | None, name: str, producer: str, *, where: str = "true") -> Reach:
    """How many of the same episodes this producer has scored, refused, or answered with no verdict."""
    statuses = [status for _, status in _chosen(lake, name, producer, where)]
    counted = {status: statuses.count(status) for status in ("scored", "refused", "malformed")}
    return Reach(**counted, missing=len(statuses) - sum(counted.values()))


def record(lake: str | None, facts: Sequence[Evidence]) -> int:
    """Append evidence, once per episode, attempt, name and producer, whoever else does the same; how many rows were new.

    Secrets and personal data in it are replaced. Of an episode that was erased meanwhile nothing is written.
    """
    gone = erased_among(store.location(lake), [fact.episode_id for fact in facts])
    facts = [one.model_copy(update={"value": cleaned(one.value)}) for one in facts if one.episode_id not in gone]
    return Writer(lake).append_new("evidence", facts, key=("episode_id", "attempt_id", "name", "producer")).rows


def _chosen(lake: str | None, name: str, producer: str, where: str) -> list[tuple[str, str | None]]:
    with connect(lake) as connection:
        rows: list[tuple[str, str | None]] = connection.execute(
            _CHOSEN.format(where=where), [name, producer]
        ).fetchall()
        return rows
