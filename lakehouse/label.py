"""Judge episodes by a rubric: SQL over evidence, appended to `rewards`. A new rubric is a relabel, not a re-rollout."""

from datetime import UTC, datetime

import pyarrow as pa

from lakehouse import store
from lakehouse.governance.audit import note
from lakehouse.query import Connection, connect
from lakehouse.records import Record, dumps, now
from lakehouse.rubrics import Asked, Coverage, RubricError, UnknownRubric, asked, current, judge
from lakehouse.schema import TABLES
from lakehouse.write import Writer

__all__ = ["CoverageError", "Labelled", "RubricError", "UnknownRubric", "current", "label"]


class CoverageError(RuntimeError):
    """Too many episodes would be left without a judgement: what should have measured them has probably failed."""

    def __init__(self, title: str, found: Coverage, limit: float) -> None:
        super().__init__(
            f"rubric {title} has no reward for {found.trainable - found.scored} of {found.trainable} episodes that ended by "
            f"the policy's own doing ({found.unjudged:.0%}; {limit:.0%} are allowed): {found.no_evidence} no_evidence, "
            f"{found.not_trainable} not_trainable, {found.missing} without a row. Nothing was written. See why their "
            "evidence is missing, or allow it with --max-unjudged 1"
        )
        self.coverage = found


class Labelled(Record):
    """Episodes by the judgement they have now; `written` of them are new or changed."""

    scored: int
    no_evidence: int
    not_trainable: int
    written: int
    missing: int = 0  # episodes of the rubric's kinds that it gave no row


def label(
    lake: str | None,
    rubric: str,
    *,
    where: str = "true",
    max_unjudged: float | None = None,
    actor: str | None = None,
) -> Labelled:
    """Judge episodes with a rubric such as "swe@2" or "swe@3:partial=0.5". `where` is SQL over the columns of `episodes`.

    Idempotent: only judgements that differ from the newest one are appended. UnknownRubric if there is no such version;
    RubricError if it is wrong, or its text is not the one that this version judged with before; CoverageError if a larger
    share of the trainable episodes than `max_unjudged` (None: than the rubric says) stays without a reward. Whatever is
    raised, nothing was written. `actor` is who the audit names; None: the user of this process.
    """
    wanted = asked(rubric)
    # Pinned, so that an episode landing meanwhile is not seen without its evidence.
    with connect(lake, pinned=store.versions(store.location(lake))) as connection:
        _same_text(connection, wanted)
        found = judge(connection, wanted, where=where)
        news = _news(connection, wanted)
        last = _last(connection, wanted)
    limit = wanted.rubric.unjudged if max_unjudged is None else max_unjudged
    if found.unjudged > limit:
        raise CoverageError(wanted.title, found, limit)
    if news.num_rows:
        Writer(lake).append_arrow("rewards", _rewards(news, wanted, max(now(), last)))
        note(lake, "label", wanted.title, {"where": where, "written": news.num_rows}, actor)
    return Labelled(
        scored=found.scored,
        no_evidence=found.no_evidence,
        not_trainable=found.not_trainable,
        missing=found.missing,
        written=news.num_rows,
    )


def _same_text(connection: Connection, wanted: Asked) -> None:
    """RubricError where this version judged with another text before: two rules under one number explain nothing."""
    rubric = wanted.rubric
    row = connection.execute(
        "select count(*) from rewards where rubric = $1 and rubric_version = $2 and rubric_digest <> $3",
        [rubric.name, rubric.version, rubric.digest],
    ).fetchone()
    if row and row[0]:
        raise rubric.error(
            f"{row[0]} rewards in the lake are of another text of this version: "
            f"put the text back and call the new one {rubric.name}@{rubric.version + 1}"
        )


def _last(connection: Connection, wanted: Asked) -> datetime:
    """A moment after every judgement of this version, whatever the clock of the machine that gave it."""
    row = connection.execute(
        "select max(labelled_at) + interval 1 microsecond from rewards where rubric = $1 and rubric_version = $2",
        [wanted.rubric.name, wanted.rubric.version],
    ).fetchone()
    return row[0] if row and row[0] else datetime.min.replace(tzinfo=UTC)


def _news(connection: Connection, wanted: Asked) -> pa.Table:
    """The judgements that differ from those the lake has."""
    return connection.execute(
        """
        select judged.*
        from judged
        anti join (select * from latest_rewards where rubric = $1 and rubric_version = $2) as known
            on judged.episode_id = known.episode_id
            and judged.status = known.status
            and judged.components = known.components
            and judged.outcome is not distinct from known.outcome
            and judged.reward is not distinct from known.reward
            and coalesce(known.parameters, '{}') = $3
        order by judged.episode_id
        """,
        [wanted.rubric.name, wanted.rubric.version, _parameters(wanted)],
    ).to_arrow_table()


def _rewards(judged: pa.Table, wanted: Asked, at: datetime) -> pa.Table:
    schema = TABLES["rewards"].arrow
    same = {
        "rubric": wanted.rubric.name,
        "rubric_version": wanted.rubric.version,
        "labelled_at": at,
        "parameters": _parameters(wanted),
        "rubric_digest": wanted.rubric.digest,
    }
    columns = [
        pa.array([same[f.name]] * judged.num_rows, f.type) if f.name in same else judged[f.name].cast(f.type)
        for f in schema
    ]
    return pa.table(columns, schema=schema)


def _parameters(wanted: Asked) -> str:
    return dumps(dict(wanted.parameters))
