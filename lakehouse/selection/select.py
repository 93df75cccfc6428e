"""Select training data: filter in SQL, materialise rows, close the token ledger, write an immutable training set.

Inputs are pinned to Delta versions and rows are digested, so building the same selection twice gives the same set.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from lakehouse import store
from lakehouse.query import Connection, connect
from lakehouse.records import TrainingSet, digest, dumps, now
from lakehouse.schema import TABLES
from lakehouse.selection import credit, estimators, filters
from lakehouse.selection import rows as trees
from lakehouse.selection.estimators import STEPWISE, Estimator, Overlong
from lakehouse.selection.filters import Filter, Setting
from lakehouse.selection.ledger import Ledger, ledger
from lakehouse.write import Writer


class Selection(BaseModel):
    """What to train on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    objective: str = Field(pattern=r"^[a-z][a-z0-9_]*$")  # the trainer's name for it
    rubrics: list[Annotated[str, StringConstraints(pattern=r"^[a-z_]+@\d+$")]] = Field(min_length=1)
    filter: str = Field(min_length=1)  # names of filters, such as grpo+dedup+short
    settings: dict[str, Setting] = {}  # of these filters, where not their defaults
    run_ids: list[str] = []  # empty: every run
    group_ids: list[str] = []  # only these groups; empty: all
    model_name: str | None = None  # only this model's episodes: token ids mean nothing to another tokenizer; None: all
    policy_version: int = 0  # the version training starts from
    max_staleness: int = Field(default=2, ge=0)  # in steps of training, of the oldest token of an episode
    max_tokens_per_row: int = Field(default=2048, ge=2)  # longer rows are dropped
    credit: Literal["outcome", "steps"] = "outcome"  # whole episodes, or call by call over the call tree
    discount: float = Field(default=1.0, gt=0, le=1)  # of a call's reward per call before it; for steps
    advantage: Estimator = Field(default_factory=lambda told: "none" if told.get("objective") == "sft" else "grpo")
    overlong: Overlong | None = None  # what long episodes lose of their reward

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.credit == "outcome" and self.discount != 1:
            raise ValueError("discount is of credit=steps: with credit=outcome every token has its episode's advantage")
        if self.credit == "steps" and self.advantage not in STEPWISE:
            fit = ", ".join(sorted(STEPWISE))
            raise ValueError(f"credit=steps is for an advantage of {fit}: {self.advantage} is of whole episodes")
        if self.overlong and self.advantage == "none":
            raise ValueError("overlong shapes rewards, and advantage=none has none: demonstrations count alike")
        return self


class NothingTrainable(RuntimeError):
    """No episode may or can be trained on. `reasons` counts episodes by why."""

    def __init__(self, selection: Selection, reasons: Mapping[str, int]) -> None:
        self.reasons = dict(reasons)
        why = ", ".join(f"{count} {reason}" for reason, count in reasons.items()) or "no episode in these runs"
        super().__init__(
            f"nothing to train on with filter {selection.filter!r}: {why}. Collect more, or change the selection"
        )


@dataclass(frozen=True)
class LoopStep:
    """The step of a loop that a set is for."""

    loop_id: str
    number: int  # from 0 on


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


def select(lake: str | None, selection: Selection, step: LoopStep | None = None) -> Selected:
    """Materialise a training set. The same selection over the same data again returns the set that is there.

    NothingTrainable if no row is left, LedgerGap if a token is unaccounted for, UnknownFilter, InvalidFilter. For the step of
    a loop a set without rows is written down all the same, before NothingTrainable: its groups are not tried again.
    """
    where = store.location(lake)
    steps = filters.chosen(selection.filter)
    settings = filters.settled(steps, selection.settings)
    pinned = store.versions(where)
    with connect(where, pinned=pinned) as connection:
        made = _made(connection, selection, steps, settings)
        inputs = {name: version for name, version in pinned.items() if name in connection.opened}
    if not made.rows.num_rows and step is None:
        raise NothingTrainable(selection, made.reasons)
    whole = dumps({"asked": selection.model_dump(), "settings": settings, "filters": [_pinned(one) for one in steps]})
    rows_digest = _digest(made.rows)
    name = "ts-" + digest(whole, rows_digest)[:24]
    trained = made.episodes.filter(pl.col("episode_id").is_in(pc.unique(made.rows["episode_id"]).to_pylist()))
    record = TrainingSet(
        training_set_id=name,
        objective=selection.objective,
        rubrics=selection.rubrics,
        filter=selection.filter,
        table_versions=dumps(inputs),
        policy_version=selection.policy_version,
        n_rows=made.rows.num_rows,
        n_episodes=trained.height,
        n_trained_tokens=made.ledger.trained,
        ledger=made.ledger.json(),
        digest=rows_digest,
        created_at=now(),
        selection=whole,
        licences=trained["licences"].explode().drop_nulls().unique().sort().to_list(),
        allowed_uses=_of_all(trained, "allowed_uses"),
        loop_id=step.loop_id if step else None,
        loop_step=step.number if step else None,
    )
    writer = Writer(where)
    if record.n_rows:
        writer.append_arrow("training_rows", _named(made.rows, name), transaction=name)
    writer.append("training_sets", [record], transaction=name)
    if not record.n_rows:
        raise NothingTrainable(selection, made.reasons)
    return Selected(name, record.n_rows, record.n_episodes, record.n_trained_tokens, made.reasons, made.ledger)


def rebuilt(lake: str | None, known: TrainingSet) -> str:
    """The digest of a set that is selected once more, from the Delta versions and the filters it was made of.

    LookupError where a pinned version cannot be read any more; NotPinned where the set is of an earlier release.
    """
    selection, steps, settings = pinned_selection(known)
    with connect(lake, pinned=known.pinned_versions) as connection:
        return _digest(_made(connection, selection, steps, settings).rows)


class NotPinned(LookupError):
    """A training set of an earlier release, which did not write down all that was asked for."""


def pinned_selection(known: TrainingSet) -> tuple[Selection, list[Filter], dict[str, Setting]]:
    """What a set was made of: the selection, its filters in the text they had, and their settings."""
    if known.selection is None:
        raise NotPinned(
            f"training set {known.training_set_id} is of an earlier release and does not say all that was asked"
        )
    whole = json.loads(known.selection)
    steps = [Filter(one["name"], "", one["sql"]) for one in whole["filters"]]
    return Selection.model_validate(whole["asked"]), steps, whole["settings"]


def estimator_of(known: TrainingSet) -> Estimator:
    """How a set's advantages were made; an earlier release knew two ways."""
    if known.selection is None:
        return "none" if known.objective == "sft" else "grpo"
    return Selection.model_validate(json.loads(known.selection)["asked"]).advantage


@dataclass(frozen=True)
class _Made:
    """A selection's outcome. `episodes` as `decided` gives them, `rows` without their set's name."""

    episodes: pl.DataFrame
    rows: pa.Table
    reasons: dict[str, int]
    ledger: Ledger


def _made(
    connection: Connection, selection: Selection, steps: Sequence[Filter], settings: Mapping[str, Setting]
) -> _Made:
    episodes = decided(connection, selection, steps, settings)
    calls = _calls(connection, episodes)
    advantage = None
    if selection.credit == "steps":
        advantage = credit.by_call(connection, episodes, calls, selection.discount, selection.advantage)
    built = trees.build(calls, max_tokens=selection.max_tokens_per_row, advantage=advantage)
    cut = np.unique(calls["position"].to_numpy()[built.disposition == "dropped:too_long"])
    if selection.advantage == "pairs" and len(cut):
        episodes = estimators.without_broken_pairs(episodes, cut)
        calls = _calls(connection, episodes)
        built = trees.build(calls, max_tokens=selection.max_tokens_per_row)
    return _Made(
        episodes,
        _rows(episodes, calls, built),
        _reasons(episodes, calls, built),
        _ledger(episodes, calls, built).closed(),
    )


def decided(
    connection: Connection, selection: Selection, steps: Sequence[Filter], settings: Mapping[str, Setting]
) -> pl.DataFrame:
    """Every episode in question with keep, reason and the advantage of its outcome, in the order rows will have.

    Also position (its row number), shaped (the reward that counts), run_id, model_name, model_version, group_id, problem_id,
    problem_edition, problem_kind, source, licences, allowed_uses, rubric, outcome, reward, n_completion_tokens,
    n_prompt_tokens and duration_s.
    """
    variables = dict(settings) | {
        "run_ids": selection.run_ids or None,
        "group_ids": selection.group_ids or None,
        "model_name": selection.model_name,
        "rubrics": selection.rubrics,
        "policy_version": selection.policy_version,
        "max_staleness": selection.max_staleness,
    }
    table = filters.apply(connection, steps, variables)
    episodes = connection.sql(
        f"""
        select
            episode_id, run_id, model_name, model_version, group_id, problem_id, problem_edition, problem_kind, source,
            licences, allowed_uses, rubric, reason is null as keep, reason, outcome, reward, n_completion_tokens,
            n_prompt_tokens, duration_s
        from {table}
        order by group_id, sample_index, episode_id
        """  # noqa: S608 - a name of our own
    ).pl()
    shaped = pl.col("reward") + (selection.overlong.punishment() if selection.overlong else 0.0)
    episodes = episodes.with_columns(shaped=shaped).with_row_index("position")
    return estimators.estimated(episodes, selection.advantage)


def _of_all(episodes: pl.DataFrame, column: str) -> list[str]:
    """The values that are in every episode's list."""
    counted = episodes.select("episode_id", value=column).explode("value").unique().group_by("value").len()
    return counted.filter(pl.col("len") == episodes.height)["value"].sort().to_list()


def _pinned(one: Filter) -> dict[str, str]:
    return {"name": one.name, "digest": digest(one.sql)[:16], "sql": one.sql}


def _calls(connection: Connection, episodes: pl.DataFrame) -> pa.Table:
    """The calls of kept episodes, with `position` of the episode in `episodes` and `parent` row number.

    In no order: sorting rows as wide as these costs more than reading them, and `rows.build` sorts the leaves.
    """
    connection.register("kept", episodes.filter("keep").select("episode_id", "position").to_arrow())
    calls = connection.sql(
        """
        select position, calls.episode_id, call_id, call_index, parent_call_id, status,
            prompt_token_ids, completion_token_ids, logprobs, weight_versions, redacted
        from calls
        inner join kept using (episode_id)
        """
    ).to_arrow_table()
    parent = credit.parents(calls)
    lost = calls.filter(pc.and_(pc.is_valid(calls["parent_call_id"]), pc.is_null(parent)))
    if lost.num_rows:
        raise trees.BrokenCallTree(
            f"call {lost['call_id'][0].as_py()!r} names parent {lost['parent_call_id'][0].as_py()!r}, "
            "which its episode does not have"
        )
    return calls.append_column("parent", parent)


def _rows(episodes: pl.DataFrame, calls: pa.Table, built: trees.Rows) -> pa.Table:
    """The training rows without their set's name."""
    position = calls["position"].take(pa.array(built.leaf, pa.int64()))
    about = episodes.select("episode_id", "group_id", "problem_kind", "reward", "advantage").to_arrow().take(position)
    spec = TABLES["training_rows"].arrow
    columns: dict[str, Any] = {
        "row_index": pa.array(np.arange(len(built.leaf))),
        "input_ids": built.input_ids,
        "loss_mask": built.loss_mask,
        "logprobs": built.logprobs,
        "weight_versions": built.weight_versions,
        "advantages": pa.nulls(len(built.leaf), spec.field("advantages").type),
    }
    if built.advantages is not None:  # the row's own is then the mean over its trained tokens
        columns["advantages"] = built.advantages
        columns["advantage"] = pa.array(_means(built.advantages, built.loss_mask))
    fields = [f for f in spec if f.name != "training_set_id"]
    data = [(columns[f.name] if f.name in columns else about[f.name]).cast(f.type) for f in fields]
    return pa.table(data, schema=pa.schema(fields)).combine_chunks()


def _means(advantages: pa.ListArray, mask: pa.ListArray) -> np.ndarray:
    """The mean advantage of each row's trained tokens; no row is without any."""
    starts = advantages.offsets.to_numpy()[:-1]
    if not len(starts):
        return np.zeros(0)
    sums = np.add.reduceat(advantages.values.to_numpy().astype(np.float64), starts)
    return sums / np.add.reduceat(mask.values.to_numpy(), starts)


def _named(table: pa.Table, training_set_id: str) -> pa.Table:
    schema = TABLES["training_rows"].arrow
    return table.add_column(0, schema.field(0), pa.array([training_set_id] * table.num_rows, pa.string()))


def _reasons(episodes: pl.DataFrame, calls: pa.Table, built: trees.Rows) -> dict[str, int]:
    counts = dict(episodes.filter(~pl.col("keep"))["reason"].value_counts().iter_rows())
    if late := len(np.unique(calls["position"].to_numpy()[built.disposition == "dropped:too_long"])):
        counts["too_long"] = late
    return dict(sorted(counts.items()))


def _ledger(episodes: pl.DataFrame, calls: pa.Table, built: trees.Rows) -> Ledger:
    """Sampled is what episodes say, trained what rows hold: what is in between is told by calls and filters."""
    left_out = episodes.filter(~pl.col("keep")).select(
        "position", fate=pl.lit("dropped"), reason="reason", tokens="n_completion_tokens"
    )
    lengths = pc.fill_null(pc.list_value_length(calls["completion_token_ids"]), 0).to_numpy()
    by_call = pl.DataFrame(
        {
            "position": calls["position"].to_numpy(),
            "told": built.disposition.astype(object),
            "tokens": lengths.astype(np.int64),
            "redacted": built.redacted,
        },
        schema={"position": pl.UInt32, "told": pl.String, "tokens": pl.Int64, "redacted": pl.Int64},
    )
    trained = pl.col("told") == "trained"
    lost = by_call.filter(~trained).select(
        "position",
        fate=pl.col("told").str.split(":").list.first(),
        reason=pl.col("told").str.split(":").list.last(),
        tokens="tokens",
    )
    redacted = by_call.filter(trained).select(
        "position", fate=pl.lit("masked"), reason=pl.lit("redacted"), tokens="redacted"
    )
    starts = built.loss_mask.offsets.to_numpy()[:-1]
    in_rows = pl.DataFrame(
        {
            "position": calls["position"].to_numpy()[built.leaf],
            "tokens": np.add.reduceat(built.loss_mask.values.to_numpy(), starts) if len(starts) else [],
        },
        schema={"position": pl.UInt32, "tokens": pl.Int64},
    ).select("position", fate=pl.lit("trained"), reason=pl.lit(None, pl.String), tokens="tokens")
    parts = [one.cast({"position": pl.UInt32, "tokens": pl.Int64}) for one in (left_out, lost, redacted, in_rows)]
    return ledger(episodes.drop("position"), pl.concat(parts))


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
            total.update(np.ascontiguousarray(column.to_numpy(zero_copy_only=False)).data)
    return total.hexdigest()
