"""Retention: content that is older than its rule goes; what happened, and what came of it, stays.

The rule of a column is in `schema.py`; a source's declaration goes before it for the episodes of that source. Emptied are the
columns of content: an episode keeps its row, its calls their log-probs, versions and times, a call without its tokens has
`token_status` "missing", so it is not trained on. Old versions lose their content too, also where a training set pins them: a
pin is no reason to keep what should be gone. A training set's own rows stay, unless the source has a rule of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from lakehouse import layout, store
from lakehouse.governance import audit
from lakehouse.governance.deltalog import Span
from lakehouse.governance.erase import signature
from lakehouse.governance.plan import BY_EPISODE
from lakehouse.governance.purge import Rule, purge
from lakehouse.query import connect
from lakehouse.records import Erasure, dumps, now
from lakehouse.schema import TABLES
from lakehouse.write import Writer

# Of text that is never NULL, what stands for nothing: JSON stays JSON.
EMPTY = {
    "request_messages": "[]",
    "response_message": "{}",
    "tools": "[]",
    "arguments": "{}",
    "observation": "",
    "value": "{}",
}
_NOTHING = sorted(set(EMPTY.values()))
CLOCKS = {  # when a row came to be
    "calls": "started_at",
    "actions": "started_at",
    "evidence": "created_at",
    "call_rewards": "labelled_at",
    "reviews": "reviewed_at",
    "quarantine": "quarantined_at",
    "episodes": "ended_at",
}
AT_ONCE = 5_000  # episodes per commit


@dataclass(frozen=True)
class Expired:
    """What retention emptied, or with a dry run would empty, in one table."""

    table: str
    episodes: int
    rows: int
    files: int  # of older versions, removed


def retain(lake: str | None = None, *, dry_run: bool = False, actor: str | None = None) -> list[Expired]:
    """Empty what is older than its rule, in every table that holds content by episode. Repeating it changes nothing."""
    where = store.location(lake)
    done = []
    for table in BY_EPISODE:
        columns = _content(table)
        if not columns:
            continue
        ids = _expired(where, table, columns)
        if not ids:
            continue
        if dry_run:
            done.append(Expired(table, len(ids), _rows(where, table, ids), 0))
            continue
        rows = files = 0
        for start in range(0, len(ids), AT_ONCE):
            some = ids[start : start + AT_ONCE]

            def losing(spans: list[Span], table: str = table, some: Sequence[str] = some) -> None:
                _remember(where, table, spans, some, actor)

            purged = purge(where, table, emptied(table, columns, some), losing=losing)
            rows, files = rows + purged.rows, files + purged.files
        done.append(Expired(table, len(ids), rows, files))
        audit.note(where, "retain", table, {"episodes": len(ids), "rows": rows, "files": files}, actor)
    return done


def emptied(table: str, columns: Sequence[str], episode_ids: Sequence[str]) -> Rule:
    """Rows of these episodes lose their content."""
    wanted = pa.array(sorted(set(episode_ids)), pa.string())
    schema = TABLES[table].arrow

    def held(data: pa.Table) -> pa.Array:
        full = [_full(data[name]) for name in columns if name in data.column_names]
        some = full[0]
        for one in full[1:]:
            some = pc.or_(some, one)
        return pc.and_(pc.is_in(data["episode_id"], value_set=wanted), some)

    def change(delta: DeltaTable) -> int:
        listed = ", ".join("'" + name.replace("'", "''") + "'" for name in wanted.to_pylist())
        values = {name: _nothing(schema.field(name)) for name in columns}
        if table == "calls":
            values["token_status"] = "'missing'"  # noqa: S105 - a status
        told = delta.update(values, predicate=f"episode_id in ({listed})", writer_properties=layout.properties(table))
        return int(told["num_updated_rows"])

    return Rule(["episode_id", *columns], change, held)


def _content(table: str) -> list[str]:
    return [name for name, about in TABLES[table].columns.items() if about.sensitivity == "content"]


def _nothing(field: pa.Field) -> str:
    """What an emptied column holds, in SQL."""
    if field.nullable:
        return "null"
    return "make_array()" if pa.types.is_list(field.type) else f"'{EMPTY[field.name]}'"


def _full(column: pa.ChunkedArray) -> pa.Array:
    """Whether a value holds content."""
    if pa.types.is_list(column.type):
        return pc.fill_null(pc.greater(pc.list_value_length(column), 0), False)
    return pc.and_(pc.is_valid(column), pc.invert(pc.is_in(column, value_set=pa.array(_NOTHING))))


def _expired(lake: str, table: str, columns: Sequence[str]) -> list[str]:
    """Episodes whose content in this table is past its rule and still there. Rows of none that landed go by their own time."""
    (days,) = {TABLES[table].column(name).retention_days for name in columns}  # one rule per table
    clock = f"held.{CLOCKS[table]}" if table in CLOCKS else "null::timestamptz"
    with connect(lake) as connection:
        rows = connection.execute(
            f"""
            with rules as (
                select source, retention_days
                from bronze.sources
                qualify row_number() over (partition by source order by declared_at desc) = 1
            ),

            landed as (
                select episodes.episode_id, episodes.ended_at, rules.retention_days
                from bronze.episodes as episodes
                left join problems using (problem_id)
                -- of a problem not in the lake its kind, as at the door
                left join rules on rules.source = coalesce(problems.source, episodes.problem_kind)
            )

            select distinct held.episode_id
            from bronze.{table} as held
            left join landed using (episode_id)
            left join rules as fallback on fallback.source = '*'
            where
                ({" or ".join(_there(table, name) for name in columns)})
                and coalesce(landed.ended_at, {clock})
                    < now() - to_days(coalesce(landed.retention_days, fallback.retention_days, $days)::integer)
            order by held.episode_id
            """,  # noqa: S608 - tables and columns of ours
            {"days": days},
        ).fetchall()
    return [name for (name,) in rows if name is not None]


def _there(table: str, name: str) -> str:
    if pa.types.is_list(TABLES[table].arrow.field(name).type):
        return f"len(held.{name}) > 0"
    return f"held.{name} not in ({', '.join(repr(one) for one in _NOTHING)})"


def _rows(lake: str, table: str, ids: Sequence[str]) -> int:
    with connect(lake) as connection:
        connection.register("expired", pa.table({"episode_id": pa.array(ids, pa.string())}))
        counted = f"select count(*) from bronze.{table} semi join expired using (episode_id)"  # noqa: S608 - ours
        found = connection.execute(counted).fetchone()
    return int(found[0]) if found else 0


def _remember(lake: str, table: str, spans: list[Span], episode_ids: Sequence[str], actor: str | None) -> None:
    """Before any file goes: which versions cannot be read any more, and which training sets lose rows."""
    sets: list[str] = []
    if table == "training_rows":
        with connect(lake) as connection:
            connection.register("expired", pa.table({"episode_id": pa.array(episode_ids, pa.string())}))
            named = "select distinct training_set_id from bronze.training_rows semi join expired using (episode_id)"
            sets = sorted(name for (name,) in connection.execute(named).fetchall())
    if spans or sets:
        row = Erasure(
            erasure_id=f"re-{uuid4().hex[:24]}",
            subject=None,
            episode_ids=[],  # it may land again, and is emptied again
            reason="retention",
            requested_by=actor or audit.user(),
            rows="{}",
            files=0,
            scanned="{}",
            tainted=[],
            signature="",
            erased_at=now(),
            training_sets=sets,
            lost_versions=dumps({table: spans}),
        )
        Writer(lake).append("erasures", [row.model_copy(update={"signature": signature(row)})])
