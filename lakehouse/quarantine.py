"""What does not land: rows that break a rule, and the episodes they belong to, kept apart with the reason.

An episode lands whole or not at all. One broken row keeps its episode out; the rest of the batch lands. What a row holds is
kept as far as its columns are no content (`schema.py`): of content its size only, because nobody has looked through it yet.
The whole row is in the gateway's journal until that is pruned, as sessions of quarantined episodes are not sealed.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.invariants import Known, broken, unknown_tokens
from lakehouse.records import Quarantined, digest, dumps, now
from lakehouse.schema import TABLES

Tables = Mapping[str, pa.Table]  # "episodes" and its children by name

DUPLICATE = "an episode id has one payload: "  # how the rule of a duplicate begins
CHILDREN = ("calls", "actions", "evidence")
ATTEMPT = ["episode_id", "attempt_id"]


@dataclass(frozen=True)
class Refused:
    """A row and the rule it breaks."""

    table: str
    row: Mapping[str, Any]
    rule: str


def sort_out(tables: Tables, known: Known) -> tuple[dict[str, pa.Table], list[Refused]]:
    """The tables without the episodes that break a rule, and what they break.

    A second attempt at an episode of the batch is left out without a word, like one that comes late.
    """
    episodes, refused = _first_attempts(tables["episodes"])
    tables = {**tables, "episodes": episodes}
    for name, data in tables.items():
        refused += [
            Refused(name, row, rule) for rule, mask in broken(name, data) for row in data.filter(mask).to_pylist()
        ]
    calls = tables["calls"]
    for rule, mask in unknown_tokens(calls, _model_of(calls, episodes), known):
        refused += [Refused("calls", row, rule) for row in calls.filter(mask).to_pylist()]
    for name in CHILDREN:
        refused += _repeated(name, tables[name])
        strays = tables[name].filter(pc.invert(is_in(tables[name], tables["episodes"])))
        late = pc.is_in(strays["episode_id"], value_set=episodes["episode_id"].combine_chunks())
        refused += [
            Refused(name, row, "a child belongs to an episode and attempt of its batch")
            for row in strays.filter(pc.invert(late)).to_pylist()
        ]
    refused += _disagreeing(episodes, calls)
    return without(tables, {one.row["episode_id"] for one in refused}), _with_episodes(refused, episodes)


def without(tables: Tables, episode_ids: Iterable[str]) -> dict[str, pa.Table]:
    """The tables without these episodes, and without children of attempts that are not in them."""
    out = pa.array(sorted(episode_ids), pa.string())
    kept = tables["episodes"]
    if len(out):
        kept = kept.filter(pc.invert(pc.is_in(kept["episode_id"], value_set=out)))
    children = {name: data for name, data in tables.items() if name != "episodes"}
    return {"episodes": kept, **{name: _of(data, kept) for name, data in children.items()}}


def rows(refused: Sequence[Refused], *, at: datetime | None = None) -> list[Quarantined]:
    """Quarantine rows, one per refused row and rule. The same row again has the same id."""
    found = {}
    for one in refused:
        key = dumps({name: _plain(one.row[name]) for name in TABLES[one.table].key})
        payload_digest = payload_of(one.row)
        name = "qu-" + digest(one.table, key, one.rule, payload_digest)[:24]
        found[name] = Quarantined(
            quarantine_id=name,
            table_name=one.table,
            episode_id=one.row["episode_id"],
            attempt_id=one.row["attempt_id"],
            row_key=key,
            rule=one.rule,
            payload=dumps({name: _shown(one.table, name, value) for name, value in one.row.items()}),
            payload_digest=payload_digest,
            quarantined_at=at or now(),
        )
    return list(found.values())


def payload_of(row: Mapping[str, Any]) -> str:
    """Digest of everything in a row but when a fact was measured: read again, it is the same episode."""
    return digest(json.dumps({k: v for k, v in row.items() if k != "created_at"}, sort_keys=True, default=str))


def is_in(data: pa.Table, parents: pa.Table) -> pa.Array:
    """Which rows are of an attempt in `parents`."""
    return pc.is_in(_attempts(data), value_set=_attempts(parents).combine_chunks())


def _of(data: pa.Table, parents: pa.Table) -> pa.Table:
    mask = is_in(data, parents)
    return data if pc.all(mask).as_py() else data.filter(mask)


def _attempts(data: pa.Table) -> pa.ChunkedArray:
    """(episode, attempt) as one value per row; neither id contains a space."""
    return pc.binary_join_element_wise(data["episode_id"], data["attempt_id"], " ")


def _first_attempts(episodes: pa.Table) -> tuple[pa.Table, list[Refused]]:
    """One row per episode id; refused are those of one attempt that differ."""
    ids = episodes["episode_id"].to_pylist()
    if len(set(ids)) == len(ids):
        return episodes, []
    first: dict[str, dict[str, Any]] = {}
    keep, refused = [], []
    for index, row in enumerate(episodes.to_pylist()):
        known = first.setdefault(row["episode_id"], row)
        if known is row:
            keep.append(index)
        elif known["attempt_id"] == row["attempt_id"] and payload_of(known) != payload_of(row):
            rule = DUPLICATE + "two rows of one batch differ"
            refused += [Refused("episodes", known, rule), Refused("episodes", row, rule)]
    return episodes.take(keep), refused


def _repeated(name: str, data: pa.Table) -> list[Refused]:
    key = list(TABLES[name].key)
    counts = data.select(key).group_by(key).aggregate([([], "count_all")])
    twice = counts.filter(pc.greater(counts["count_all"], 1)).select(key)
    if not twice.num_rows:
        return []
    wanted = {tuple(row.values()) for row in twice.to_pylist()}
    return [
        Refused(name, row, "a key appears once in a batch")
        for row in data.to_pylist()
        if tuple(row[column] for column in key) in wanted
    ]


def _model_of(calls: pa.Table, episodes: pa.Table) -> pa.Array:
    where = pc.index_in(calls["episode_id"], value_set=episodes["episode_id"].combine_chunks())
    return episodes["model_name"].combine_chunks().take(where.combine_chunks())


def _disagreeing(episodes: pa.Table, calls: pa.Table) -> list[Refused]:
    """Counts on an episode are those of its calls: the ledger's independent witness that no call was lost."""
    tokens = calls.select(ATTEMPT).append_column("n", pc.list_value_length(calls["completion_token_ids"]))
    sums = tokens.group_by(ATTEMPT).aggregate([("n", "sum"), ("n", "count")])
    told = episodes.join(sums, ATTEMPT)
    refused = []
    for column, counted in (("n_calls", "n_count"), ("n_completion_tokens", "n_sum")):
        wrong = told.filter(pc.not_equal(told[column], pc.fill_null(told[counted], 0)))
        for row in wrong.to_pylist():
            rule = f"{column} is {row[column]}, its calls in the batch make {row[counted] or 0}"
            refused.append(Refused("episodes", {name: row[name] for name in TABLES["episodes"].arrow.names}, rule))
    return refused


def _with_episodes(refused: list[Refused], episodes: pa.Table) -> list[Refused]:
    """Also the episode of each refused child: that row says that the episode is in quarantine."""
    named = {one.row["episode_id"] for one in refused if one.table == "episodes"}
    rules: dict[str, str] = {}
    for one in refused:
        if one.row["episode_id"] not in named:
            rules.setdefault(one.row["episode_id"], f"one of its {one.table}: {one.rule}")
    whole = episodes.filter(pc.is_in(episodes["episode_id"], value_set=pa.array(list(rules), pa.string())))
    return refused + [Refused("episodes", row, rules[row["episode_id"]]) for row in whole.to_pylist()]


def _shown(table: str, column: str, value: Any) -> Any:
    """A value as quarantine keeps it: of content how much it was."""
    if TABLES[table].column(column).sensitivity != "content" or value is None:
        return _plain(value)
    return {"length": len(value)} if isinstance(value, str | list) else None


def _plain(value: Any) -> Any:
    """JSON has no NaN, and no times."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value.isoformat() if isinstance(value, datetime) else value
