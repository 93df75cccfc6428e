"""Select training data: filter in SQL, materialise rows, close the token ledger, write an immutable training set.

Inputs are pinned to Delta versions and rows are digested, so building the same selection twice gives the same set.
"""

import hashlib
from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from lakehouse import store
from lakehouse.query import Connection, connect, relations
from lakehouse.records import TrainingSet, digest, dumps, now
from lakehouse.schema import TABLES
from lakehouse.selection import rows as trees
from lakehouse.selection.ledger import Ledger
from lakehouse.write import Writer

STD_EPSILON = 1e-4  # keeps the advantage of nearly constant groups finite
INPUTS = ("problems", "episodes", "calls", "rewards", "model_versions")


class Selection(BaseModel):
    """What to train on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    objective: Literal["sft", "grpo"]
    rubrics: list[Annotated[str, StringConstraints(pattern=r"^[a-z_]+@\d+$")]] = Field(min_length=1)
    filter: str  # a file of sql/filters with the columns keep and reason
    run_ids: list[str] = []  # empty: every run
    model_name: str | None = None  # only this model's episodes: token ids mean nothing to another tokenizer; None: all
    policy_version: int = 0  # the version training starts from
    max_staleness: int = Field(default=2, ge=0)  # in versions, of the oldest token of an episode
    max_tokens_per_row: int = Field(default=2048, ge=2)  # longer rows are dropped


class UnknownFilter(LookupError):
    """No filter has this name, or it is only a step of others."""


class NothingTrainable(RuntimeError):
    """No episode may or can be trained on. `reasons` counts episodes by why."""

    def __init__(self, selection: Selection, reasons: dict[str, int]) -> None:
        self.reasons = reasons
        why = ", ".join(f"{count} {reason}" for reason, count in reasons.items()) or "no episode in these runs"
        super().__init__(
            f"nothing to train on with filter {selection.filter!r}: {why}. Collect more, or change the selection"
        )


@dataclass(frozen=True)
class Selected:
    """A training set that is in the lake. `tokens` are trained tokens.

    `reasons` counts episodes left out by why; those under `too_long` may have lost only some of their rows.
    """

    training_set_id: str
    rows: int
    episodes: int
    tokens: int
    reasons: dict[str, int]
    ledger: Ledger


def select(lake: str | None, selection: Selection) -> Selected:
    """Materialise a training set. The same selection over the same data again returns the set that is there.

    NothingTrainable if no row is left, LedgerGap if a token is unaccounted for.
    """
    where = store.location(lake)
    pinned = {name: version for name, version in store.versions(where).items() if name in INPUTS}
    with connect(where, pinned=pinned) as connection:
        episodes = _filtered(connection, selection)
        calls = _calls(connection, episodes)
    built = trees.build(calls, max_tokens=selection.max_tokens_per_row)
    table = _rows(episodes, calls, built)
    reasons = _reasons(episodes, calls, built)
    ledger = _ledger(episodes, calls, built).closed()
    if not table.num_rows:
        raise NothingTrainable(selection, reasons)
    rows_digest = _digest(table)
    name = "ts-" + digest(dumps(selection.model_dump()), rows_digest)[:24]
    record = TrainingSet(
        training_set_id=name,
        objective=selection.objective,
        rubrics=selection.rubrics,
        filter=selection.filter,
        table_versions=dumps(pinned),
        policy_version=selection.policy_version,
        n_rows=table.num_rows,
        n_episodes=pc.count_distinct(table["episode_id"]).as_py(),
        n_trained_tokens=ledger.trained,
        ledger=ledger.json(),
        digest=rows_digest,
        created_at=now(),
    )
    writer = Writer(where)
    writer.append_arrow("training_rows", _named(table, name), transaction=name)
    writer.append("training_sets", [record], transaction=name)
    return Selected(name, record.n_rows, record.n_episodes, ledger.trained, reasons, ledger)


def _filtered(connection: Connection, selection: Selection) -> pl.DataFrame:
    """Every episode in question with keep, reason and advantage, in the order rows will have."""
    source = _filter(selection.filter)
    for name, value in {
        "run_ids": selection.run_ids or None,
        "model_name": selection.model_name,
        "rubrics": selection.rubrics,
        "policy_version": selection.policy_version,
        "max_staleness": selection.max_staleness,
    }.items():
        connection.execute(f"set variable {name} = {_literal(value)}")
    episodes = connection.sql(
        f"""
        select episode_id, group_id, problem_kind, keep, reason, outcome, reward, n_completion_tokens
        from {source}
        order by group_id, sample_index, episode_id
        """  # noqa: S608 - the name of one of our own files
    ).pl()
    return episodes.with_columns(advantage=_advantage(selection.objective))


def _filter(name: str) -> str:
    """The filter's qualified name, if its file says what it keeps."""
    usable = [known.name for known in relations() if known.name.startswith("filters.") and "keeps" in known.header]
    if f"filters.{name}" not in usable:
        there = ", ".join(known.removeprefix("filters.") for known in usable)
        raise UnknownFilter(f"no filter {name!r} in lakehouse/sql/filters with a line `-- keeps:`; there are {there}")
    return f"filters.{name}"


def _advantage(objective: str) -> pl.Expr:
    """SFT: 1. GRPO (arXiv 2402.03300): (reward - mean) / (std + 1e-4), sample std, over the group's scored episodes."""
    if objective == "sft":
        return pl.lit(1.0)
    reward = pl.col("reward")  # NULL where not scored: polars leaves NULLs out of mean and std
    return (reward - reward.mean().over("group_id")) / (reward.std(ddof=1).over("group_id") + STD_EPSILON)


def _calls(connection: Connection, episodes: pl.DataFrame) -> pa.Table:
    """The calls of kept episodes in row order, with `position` of the episode in `episodes` and `parent` row number."""
    kept = episodes.with_row_index("position").filter("keep").select("episode_id", "position").to_arrow()
    connection.register("kept", kept)
    calls = connection.sql(
        """
        select position, calls.episode_id, call_id, parent_call_id, status,
            prompt_token_ids, completion_token_ids, logprobs, weight_versions
        from calls
        inner join kept using (episode_id)
        order by position, call_index
        """
    ).to_arrow_table()
    key = pc.binary_join_element_wise(calls["episode_id"], calls["call_id"], " ")
    wanted = pc.binary_join_element_wise(calls["episode_id"], calls["parent_call_id"], " ")  # NULL for roots
    parent = pc.if_else(pc.is_valid(wanted), pc.index_in(wanted, value_set=key.combine_chunks()), None)
    lost = calls.filter(pc.and_(pc.is_valid(wanted), pc.is_null(parent)))
    if lost.num_rows:
        raise trees.BrokenCallTree(
            f"call {lost['call_id'][0].as_py()!r} names parent {lost['parent_call_id'][0].as_py()!r}, "
            "which its episode does not have"
        )
    return calls.append_column("parent", parent.cast(pa.int64()))


def _rows(episodes: pl.DataFrame, calls: pa.Table, built: trees.Rows) -> pa.Table:
    """The training rows without their set's name."""
    position = calls["position"].take(pa.array(built.leaf, pa.int64()))
    about = episodes.select("episode_id", "group_id", "problem_kind", "reward", "advantage").to_arrow().take(position)
    columns = {
        "row_index": pa.array(np.arange(len(built.leaf))),
        "input_ids": built.input_ids,
        "loss_mask": built.loss_mask,
        "logprobs": built.logprobs,
        "weight_versions": built.weight_versions,
        "advantages": pa.nulls(len(built.leaf), TABLES["training_rows"].arrow.field("advantages").type),
    }
    fields = [f for f in TABLES["training_rows"].arrow if f.name != "training_set_id"]
    data = [(columns[f.name] if f.name in columns else about[f.name]).cast(f.type) for f in fields]
    return pa.table(data, schema=pa.schema(fields)).combine_chunks()


def _named(table: pa.Table, training_set_id: str) -> pa.Table:
    schema = TABLES["training_rows"].arrow
    return table.add_column(0, schema.field(0), pa.array([training_set_id] * table.num_rows, pa.string()))


def _reasons(episodes: pl.DataFrame, calls: pa.Table, built: trees.Rows) -> dict[str, int]:
    counts = Counter(episodes.filter(~pl.col("keep"))["reason"].to_list())
    late = {
        p
        for p, what in zip(calls["position"].to_pylist(), built.disposition, strict=True)
        if what == "dropped:too_long"
    }
    if late:
        counts["too_long"] = len(late)
    return dict(sorted(counts.items()))


def _ledger(episodes: pl.DataFrame, calls: pa.Table, built: trees.Rows) -> Ledger:
    lengths = pc.fill_null(pc.list_value_length(calls["completion_token_ids"]), 0).to_pylist()
    masked: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    for what, n in zip(built.disposition, lengths, strict=True):
        kind, _, reason = what.partition(":")
        if kind != "trained":
            (masked if kind == "masked" else dropped)[reason] += n
    for row in episodes.filter(~pl.col("keep")).group_by("reason").agg(pl.col("n_completion_tokens").sum()).to_dicts():
        dropped[row["reason"]] += row["n_completion_tokens"]
    return Ledger(
        sampled=int(episodes["n_completion_tokens"].sum()),
        trained=int(pc.sum(built.loss_mask.flatten()).as_py() or 0),
        masked=dict(sorted(masked.items())),
        dropped=dict(sorted(dropped.items())),
    )


def _digest(table: pa.Table) -> str:
    """SHA-256 over names, lengths and values of every column, in row order."""
    total = hashlib.sha256()
    for name in table.column_names:
        column = table[name].combine_chunks()
        if column.null_count == len(column):
            continue  # a column that a set does not use: sets from before it had the same digest
        total.update(name.encode())
        if pa.types.is_list(column.type):
            total.update(pc.list_value_length(column).to_numpy().tobytes())
            column = column.flatten()
        if pa.types.is_string(column.type):
            total.update(dumps(column.to_pylist()).encode())
        else:
            total.update(column.to_numpy(zero_copy_only=False).tobytes())
    return total.hexdigest()


def _literal(value: list[str] | str | int | None) -> str:
    """A value as SQL text: SET VARIABLE takes no parameters."""
    if value is None:
        return "null"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return "[" + ", ".join(map(_literal, value)) + "]"
