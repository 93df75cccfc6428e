"""Why a model version is as it is: everything that made it, and everything that made the versions it comes from."""

from datetime import datetime

from pydantic import BaseModel, ConfigDict

from lakehouse.lineage.versions import records, training_set, version
from lakehouse.query import UnknownPin, connect
from lakehouse.records import ModelVersion
from lakehouse.selection.ledger import Ledger
from lakehouse.selection.select import NotPinned, rebuilt


class Fact(BaseModel):
    """One thing that made a version; see the view `provenance`, which has the same columns."""

    aspect: str
    item: str
    value: str | None
    amount: int | None


class Ancestor(BaseModel):
    """A version on the way to the first one. `distance` counts generations."""

    distance: int
    version: int
    stage: str
    training_set_id: str | None
    rows: int | None
    trained_tokens: int | None
    commit: str


class Gated(BaseModel):
    """A decision of the gate about the version."""

    gate_id: str
    champion: int | None
    passed: bool
    reasons: list[str]
    policy_digest: str
    decided_at: datetime
    decided_by: str


class Why(BaseModel):
    """What made a version. Lists are empty where it was not trained here."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    version: ModelVersion
    rows: int = 0
    trained_tokens: int = 0
    digest: str | None = None  # of the training rows
    ledger: Ledger | None = None
    facts: list[Fact]
    ancestors: list[Ancestor]  # the parent first
    gates: list[Gated] = []  # the newest first
    problems: dict[str, int]  # episodes by problem
    episodes: list[str]
    same: bool | None = None  # whether selecting once more gave the same rows; None: not asked for, or it cannot be
    not_the_same: str | None = None  # why it cannot be


def why(lake: str | None, name: str, *, verify: bool = False) -> Why:
    """Everything that made the version `name@number`. UnknownVersion where there is none.

    `verify` selects its training set once more from the Delta versions it pinned, and compares the digests.
    """
    with connect(lake) as connection:
        held = version(connection, name)
        known = training_set(connection, held.training_set_id)
        key = [held.name, held.version]
        facts = records(
            connection,
            "select aspect, item, value, amount from provenance where name = $1 and version = $2 "
            "order by aspect, amount desc nulls first, item",
            key,
        )
        ancestors = records(
            connection,
            """
            select distance, ancestor as version, stage, training_set_id, n_rows as rows, n_trained_tokens as trained_tokens,
                commit
            from ancestry
            inner join model_versions as held on ancestry.name = held.name and ancestry.ancestor = held.version
            left join training_sets using (training_set_id)
            where ancestry.name = $1 and ancestry.version = $2 and distance > 0
            order by distance
            """,
            key,
        )
        gates = records(
            connection,
            "select gate_id, champion, passed, reasons, policy_digest, decided_at, decided_by from gates "
            "where name = $1 and candidate = $2 order by decided_at desc",
            key,
        )
        episodes = records(
            connection,
            """
            select episode_id, problem_id
            from trained_on
            left join episodes using (episode_id)
            where training_set_id = $1
            order by problem_id, episode_id
            """,
            [held.training_set_id],
        )
    problems: dict[str, int] = {}
    for row in episodes:
        problems[row["problem_id"]] = problems.get(row["problem_id"], 0) + 1
    found = Why(
        version=held,
        facts=[Fact(**row) for row in facts],
        ancestors=[Ancestor(**row) for row in ancestors],
        gates=[Gated(**row) for row in gates],
        problems=problems,
        episodes=[row["episode_id"] for row in episodes],
    )
    if known is None:
        return found
    found.rows, found.trained_tokens, found.digest = known.n_rows, known.n_trained_tokens, known.digest
    found.ledger = Ledger.of(known.ledger)
    if verify:
        try:
            found.same = rebuilt(lake, known) == known.digest
        except (NotPinned, UnknownPin) as error:
            found.not_the_same = str(error)
    return found
