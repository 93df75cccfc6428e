"""Judge episodes by a rubric: SQL over evidence, appended to `rewards`. A new rubric is a relabel, not a re-rollout."""

from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from lakehouse import store
from lakehouse.query import connect, relation
from lakehouse.records import now
from lakehouse.schema import TABLES
from lakehouse.write import Writer


class UnknownRubric(LookupError):
    """No rubric of this name and version."""


@dataclass(frozen=True)
class Labelled:
    """Episodes by the judgement they have now; `written` of them are new or changed."""

    scored: int
    no_evidence: int
    not_trainable: int
    written: int


def label(lake: str | None, rubric: str, *, where: str = "true") -> Labelled:
    """Judge episodes with a rubric such as "swe@1". `where` is SQL over the columns of `episodes`.

    Idempotent: only judgements that differ from the newest one are appended. UnknownRubric if there is no such version.
    """
    name, version = _parsed(rubric)
    # Pinned, so that an episode landing meanwhile is not seen without its evidence.
    with connect(lake, pinned=store.versions(store.location(lake))) as connection:
        connection.execute(
            f"""
            create temp table judged as
            select judgement.*
            from rubrics.{name} as judgement
            semi join (select episode_id from episodes where {where}) using (episode_id)
            """  # noqa: S608 - `where` is SQL by contract and the connection only reads
        )
        counts = dict(connection.execute("select status, count(*) from judged group by status").fetchall())
        news = connection.execute(
            """
            select judged.episode_id, outcome, reward, status, components
            from judged
            anti join (select * from latest_rewards where rubric = $1 and rubric_version = $2) as known
                on judged.episode_id = known.episode_id
                and judged.status = known.status
                and judged.components = known.components
                and judged.outcome is not distinct from known.outcome
                and judged.reward is not distinct from known.reward
            order by judged.episode_id
            """,
            [name, version],
        ).to_arrow_table()
    if news.num_rows:
        Writer(lake).append_arrow("rewards", _rewards(news, name, version, now()))
    return Labelled(
        scored=counts.get("scored", 0),
        no_evidence=counts.get("no_evidence", 0),
        not_trainable=counts.get("not_trainable", 0),
        written=news.num_rows,
    )


def current(name: str) -> str:
    """A rubric with the version its file has now, such as "swe@1". UnknownRubric if there is none of this name."""
    try:
        return f"{name}@{relation(f'rubrics.{name}').header['version']}"
    except KeyError as error:
        raise UnknownRubric(f"rubric {name!r}: {error.args[0]}") from None


def _parsed(rubric: str) -> tuple[str, int]:
    """("swe", 1) from "swe@1", if the file of that name says it is that version."""
    name, _, version = rubric.partition("@")
    try:
        held = relation(f"rubrics.{name}").header["version"]
    except KeyError as error:
        raise UnknownRubric(f"rubric {rubric!r}: {error.args[0]}") from None
    if version != held:
        raise UnknownRubric(
            f"rubric {rubric!r}: lakehouse/sql/rubrics/{name}.sql is version {held}; ask for '{name}@{held}'"
        )
    return name, int(held)


def _rewards(judged: pa.Table, name: str, version: int, at: datetime) -> pa.Table:
    schema = TABLES["rewards"].arrow
    same = {"rubric": name, "rubric_version": version, "labelled_at": at, "parameters": None, "rubric_digest": None}
    columns = [
        pa.array([same[f.name]] * judged.num_rows, f.type) if f.name in same else judged[f.name].cast(f.type)
        for f in schema
    ]
    return pa.table(columns, schema=schema)
