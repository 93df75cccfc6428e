"""Rules a record must keep before it is written. Checked over Arrow columns, never token by token in Python."""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.schema import TABLES

Rule = tuple[str, Callable[[pa.Table], pa.Array]]  # the law in words, and a mask that is true where a row breaks it


class InvalidRecord(ValueError):
    """A record breaks a rule; nothing of its batch was written. `key` names the record."""

    def __init__(self, table: str, key: dict[str, object], rule: str) -> None:
        self.table, self.key, self.rule = table, key, rule
        where = ", ".join(f"{name}={value!r}" for name, value in key.items())
        super().__init__(f"{table}({where}): {rule}; nothing was written. Leave this record out or correct it.")


def _lengths_differ(left: str, right: str) -> Callable[[pa.Table], pa.Array]:
    def broken(data: pa.Table) -> pa.Array:
        return pc.not_equal(pc.list_value_length(data[left]), pc.list_value_length(data[right]))

    return broken


def _any_item(column: str, bad: Callable[[pa.Array], pa.Array]) -> Callable[[pa.Table], pa.Array]:
    """True for rows where some list item is bad."""

    def broken(data: pa.Table) -> pa.Array:
        items = pc.list_flatten(data[column])
        rows = pc.filter(pc.list_parent_indices(data[column]), pc.fill_null(bad(items), True))
        return pc.is_in(pa.array(range(data.num_rows), pa.int64()), value_set=pc.unique(rows))

    return broken


def _negative(items: pa.Array) -> pa.Array:
    return pc.less(items, 0)


def _not_finite(items: pa.Array) -> pa.Array:
    return pc.invert(pc.is_finite(items))


def _no_logprobs(data: pa.Table) -> pa.Array:
    sampled = pc.and_(pc.not_equal(data["token_route"], "demonstration"), pc.equal(data["token_status"], "exact"))
    return pc.and_(pc.and_(sampled, pc.is_null(data["logprobs"])), pc.greater(_length(data, "completion_token_ids"), 0))


def _length(data: pa.Table, column: str) -> pa.Array:
    return pc.fill_null(pc.list_value_length(data[column]), 0)


def _bad_mask(items: pa.Array) -> pa.Array:
    return pc.invert(pc.is_in(items, value_set=pa.array([0, 1], items.type)))


RULES: dict[str, tuple[Rule, ...]] = {
    "calls": (
        ("logprobs has one value per completion token", _lengths_differ("logprobs", "completion_token_ids")),
        (
            "weight_versions has one value per completion token",
            _lengths_differ("weight_versions", "completion_token_ids"),
        ),
        ("prompt_token_ids are >= 0", _any_item("prompt_token_ids", _negative)),
        ("completion_token_ids are >= 0", _any_item("completion_token_ids", _negative)),
        ("logprobs are finite", _any_item("logprobs", _not_finite)),
        ("a sampled call with token_status exact has logprobs", _no_logprobs),
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
        ("input_ids are >= 0", _any_item("input_ids", _negative)),
        ("loss_mask is 0 or 1", _any_item("loss_mask", _bad_mask)),
        ("logprobs are finite", _any_item("logprobs", _not_finite)),
        ("advantage is finite", lambda data: _not_finite(data["advantage"])),
    ),
}


def check(table: str, data: pa.Table) -> None:
    """Raise InvalidRecord for the first row that breaks a rule of its table, or that repeats a key within the batch."""
    for rule, broken in RULES.get(table, ()):
        refuse(table, data, broken(data), rule)
    key = list(TABLES[table].key)
    counts = data.select(key).group_by(key).aggregate([([], "count_all")])
    twice = counts.filter(pc.greater(counts["count_all"], 1))
    if twice.num_rows:
        raise InvalidRecord(table, twice.select(key).slice(0, 1).to_pylist()[0], "a key appears once in a batch")


def refuse(table: str, data: pa.Table, broken: pa.Array, rule: str) -> None:
    """Raise InvalidRecord for the first row where `broken` is true."""
    rows = data.filter(pc.fill_null(broken, False))
    if rows.num_rows:
        raise InvalidRecord(table, rows.select(list(TABLES[table].key)).slice(0, 1).to_pylist()[0], rule)
