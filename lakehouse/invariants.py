"""Rules a record must keep before it is written. Checked over Arrow columns, never token by token in Python."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.records import now
from lakehouse.schema import TABLES

Rule = tuple[str, Callable[[pa.Table], pa.Array]]  # the law in words, and a mask that is true where a row breaks it
SKEW = timedelta(minutes=5)  # clocks of machines that land in one lake may differ by this much


class InvalidRecord(ValueError):
    """A record breaks a rule; nothing of its batch was written. `key` names the record."""

    def __init__(self, table: str, key: dict[str, object], rule: str) -> None:
        self.table, self.key, self.rule = table, key, rule
        where = ", ".join(f"{name}={value!r}" for name, value in key.items())
        super().__init__(f"{table}({where}): {rule}; nothing was written. Leave this record out or correct it.")


class ClockSkew(RuntimeError):
    """A time lies in the future: a clock is wrong, and what is the newest row could not be told."""


@dataclass(frozen=True)
class Known:
    """What the lake knows of the models that sampled a batch. A model that it does not know is not checked."""

    versions: Mapping[str, frozenset[int]] = field(default_factory=dict)  # registered versions by model name
    vocabulary: Mapping[str, int] = field(default_factory=dict)  # number of token ids by model name


def _lengths_differ(left: str, right: str) -> Callable[[pa.Table], pa.Array]:
    def broken(data: pa.Table) -> pa.Array:
        return pc.not_equal(pc.list_value_length(data[left]), pc.list_value_length(data[right]))

    return broken


def any_item(data: pa.Table, column: str, bad: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """True for rows where some list item is bad."""
    items = pc.list_flatten(data[column])
    wrong = pc.fill_null(bad(items), True)
    if not pc.any(wrong).as_py():
        return pa.array(np.zeros(data.num_rows, bool))
    rows = pc.filter(pc.list_parent_indices(data[column]), wrong)
    return pc.is_in(pa.array(np.arange(data.num_rows)), value_set=pc.unique(rows))


def _any_item(column: str, bad: Callable[[pa.Array], pa.Array]) -> Callable[[pa.Table], pa.Array]:
    return lambda data: any_item(data, column, bad)


def _negative(items: pa.Array) -> pa.Array:
    return pc.less(items, 0)


def _not_finite(items: pa.Array) -> pa.Array:
    return pc.invert(pc.is_finite(items))


def _sampled(data: pa.Table) -> pa.Array:
    return pc.and_(pc.not_equal(data["token_route"], "demonstration"), pc.equal(data["token_status"], "exact"))


def _no_logprobs(data: pa.Table) -> pa.Array:
    return pc.and_(pc.and_(_sampled(data), pc.is_null(data["logprobs"])), pc.greater(_length(data), 0))


def _length(data: pa.Table) -> pa.Array:
    return pc.fill_null(pc.list_value_length(data["completion_token_ids"]), 0)


def _bad_mask(items: pa.Array) -> pa.Array:
    return pc.or_(pc.less(items, 0), pc.greater(items, 1))


RULES: dict[str, tuple[Rule, ...]] = {
    "episodes": (
        ("an episode does not end before it starts", lambda data: pc.less(data["ended_at"], data["started_at"])),
    ),
    "calls": (
        ("logprobs has one value per completion token", _lengths_differ("logprobs", "completion_token_ids")),
        (
            "weight_versions has one value per completion token",
            _lengths_differ("weight_versions", "completion_token_ids"),
        ),
        ("redacted has one value per completion token", _lengths_differ("redacted", "completion_token_ids")),
        ("prompt_token_ids are >= 0", _any_item("prompt_token_ids", _negative)),
        ("completion_token_ids are >= 0", _any_item("completion_token_ids", _negative)),
        ("logprobs are finite", _any_item("logprobs", _not_finite)),
        ("a sampled call with token_status exact has logprobs", _no_logprobs),
        (
            "the weight version of a sampled token is known",
            lambda data: pc.and_(_sampled(data), any_item(data, "weight_versions", _negative)),
        ),
    ),
    "rewards": (
        (
            "reward and outcome are set exactly where status is scored",
            lambda data: pc.or_(
                pc.not_equal(pc.equal(data["status"], "scored"), pc.is_valid(data["reward"])),
                pc.not_equal(pc.equal(data["status"], "scored"), pc.is_valid(data["outcome"])),
            ),
        ),
        ("reward is finite", lambda data: _not_finite(data["reward"])),
    ),
    "training_rows": (
        ("loss_mask has one value per input id", _lengths_differ("loss_mask", "input_ids")),
        ("logprobs has one value per input id", _lengths_differ("logprobs", "input_ids")),
        ("weight_versions has one value per input id", _lengths_differ("weight_versions", "input_ids")),
        ("advantages has one value per input id", _lengths_differ("advantages", "input_ids")),
        ("input_ids are >= 0", _any_item("input_ids", _negative)),
        ("loss_mask is 0 or 1", _any_item("loss_mask", _bad_mask)),
        ("logprobs are finite", _any_item("logprobs", _not_finite)),
        ("advantage is finite", lambda data: _not_finite(data["advantage"])),
    ),
}


def broken(table: str, data: pa.Table) -> Iterator[tuple[str, pa.Array]]:
    """Each rule of the table with a mask of the rows that break it, where there are any."""
    for rule, breaks in RULES.get(table, ()):
        mask = pc.fill_null(breaks(data), False)
        if pc.any(mask).as_py():
            yield rule, mask


def unknown_tokens(calls: pa.Table, model: pa.Array, known: Known) -> Iterator[tuple[str, pa.Array]]:
    """As `broken`, for what only the lake can tell: `model` is the model name of each call's episode."""
    for name in pc.unique(model).drop_null().to_pylist():
        own = pc.fill_null(pc.equal(model, name), False)
        size, versions = known.vocabulary.get(name), known.versions.get(name)
        if size is not None:
            outside = pc.and_(own, _too_large(calls, size))
            if pc.any(outside).as_py():
                yield f"token ids are below {size}, the vocabulary of {name}", outside
        if versions:
            there = pa.array(sorted(versions | {-1, 0}), pa.int32())
            mask = any_item(calls, "weight_versions", lambda items: pc.invert(pc.is_in(items, value_set=there)))  # noqa: B023
            unknown = pc.and_(own, mask)
            if pc.any(unknown).as_py():
                yield f"weight versions are registered versions of {name}", unknown


def check(table: str, data: pa.Table) -> None:
    """Raise InvalidRecord for the first row that breaks a rule of its table, or that repeats a key within the batch."""
    for rule, mask in broken(table, data):
        raise InvalidRecord(table, data.filter(mask).select(list(TABLES[table].key)).slice(0, 1).to_pylist()[0], rule)
    key = list(TABLES[table].key)
    counts = data.select(key).group_by(key).aggregate([([], "count_all")])
    twice = counts.filter(pc.greater(counts["count_all"], 1))
    if twice.num_rows:
        raise InvalidRecord(table, twice.select(key).slice(0, 1).to_pylist()[0], "a key appears once in a batch")


def check_clock(table: str, data: pa.Table) -> None:
    """ClockSkew where a time lies further ahead of this machine's clock than clocks may differ."""
    limit = now() + SKEW
    for column in (f.name for f in data.schema if pa.types.is_timestamp(f.type)):
        newest = pc.max(data[column]).as_py()
        if newest is not None and newest > limit:
            raise ClockSkew(
                f"{table}.{column} is {newest:%Y-%m-%d %H:%M:%S}, {(newest - now()).total_seconds():.0f} s ahead of this "
                "machine's clock; nothing was written. Set the clocks of both machines by NTP and land again"
            )


def _too_large(calls: pa.Table, size: int) -> pa.Array:
    def large(items: pa.Array) -> pa.Array:
        return pc.greater_equal(items, size)

    return pc.or_(any_item(calls, "prompt_token_ids", large), any_item(calls, "completion_token_ids", large))
