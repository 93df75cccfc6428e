"""Who computes what: every row once, nothing over budget, ranks in step."""

from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.training.config import TrainConfig
from tasks.training.data import Row
from tasks.training.packing import minibatches, pack


def row(length: int) -> Row:
    return Row(
        "r", np.zeros(length, np.int64), np.array([length - 2]), np.zeros(1, np.float32), np.ones(1, np.float32), 1
    )


def config(**overrides: object) -> TrainConfig:
    base = {"objective": "sft", "model": "m", "rows": "r.parquet", "output": "o", "learning_rate": 1e-3}
    return TrainConfig.model_validate(base | overrides)


@given(
    lengths=st.lists(st.integers(2, 900), min_size=1, max_size=60),
    budget=st.integers(100, 3000),
    ranks=st.integers(1, 4),
)
@settings(max_examples=60, deadline=None)
def test_every_row_is_packed_once_within_budget_and_ranks_make_equally_many_passes(
    lengths: list[int], budget: int, ranks: int
) -> None:
    rows = [row(length) for length in lengths]
    packed = pack(list(range(len(rows))), rows, budget, ranks)
    assert sorted(i for passes in packed for held in passes for i in held) == list(range(len(rows)))
    assert len(packed) == ranks
    assert len({len(passes) for passes in packed}) == 1
    assert all(len(held) < 2 or sum(lengths[i] for i in held) <= budget for passes in packed for held in passes)


def test_ranks_get_nearly_the_same_number_of_tokens() -> None:
    lengths = np.random.default_rng(0).integers(300, 900, 150).tolist()
    first, second = (
        sum(lengths[i] for held in passes for i in held)
        for passes in pack(list(range(150)), [row(length) for length in lengths], 2048, 2)
    )
    assert abs(first - second) < 0.02 * sum(lengths)


def test_the_seed_decides_the_order_and_every_epoch_has_its_own() -> None:
    rows = [row(5) for _ in range(32)]
    plan = minibatches(rows, config(epochs=2, minibatch=8))
    assert plan == minibatches(rows, config(epochs=2, minibatch=8))
    assert plan != minibatches(rows, config(epochs=2, minibatch=8, seed=1))
    assert len(plan) == 8
    assert plan[:4] != plan[4:]
    assert sorted(chain(*plan[:4])) == sorted(chain(*plan[4:])) == list(range(32))


@pytest.mark.parametrize(
    ("unit", "size", "steps"), [("rows", 8, 4), ("rows", 100, 1), ("tokens", 50, 3), ("rows", 14, 2)]
)
def test_a_minibatch_is_measured_in_rows_or_tokens_and_no_scrap_is_left(unit: str, size: int, steps: int) -> None:
    plan = minibatches([row(5) for _ in range(32)], config(minibatch=size, minibatch_unit=unit))
    assert len(plan) == steps
    assert sum(len(chosen) for chosen in plan) == 32


def test_max_steps_ends_early() -> None:
    assert len(minibatches([row(5), row(5)], config(minibatch=1, epochs=3, max_steps=4))) == 4
