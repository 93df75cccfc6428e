"""Who computes what: every row once, nothing over budget, ranks in step."""

from dataclasses import replace
from itertools import chain, count
from time import process_time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.training.config import TrainConfig
from tasks.training.data.mapped import Row
from tasks.training.data.packing import BLOCK, blocks, minibatches, pack
from tasks.training.data.tree import tree_of

NUMBERS = count()


def row(length: int) -> Row:
    return Row(
        f"r{next(NUMBERS)}",
        np.zeros(length, np.int64),
        np.array([length - 2]),
        np.zeros(1, np.float32),
        np.ones(1, np.float32),
        1,
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
    packed = pack(list(range(len(rows))), rows, budget, ranks, shared=None)
    assert sorted(i for passes in packed for held in passes for i in held) == list(range(len(rows)))
    assert len(packed) == ranks
    assert len({len(passes) for passes in packed}) == 1
    assert all(len(held) < 2 or sum(lengths[i] for i in held) <= budget for passes in packed for held in passes)


def group(size: int, prompt: int, answer: int, seed: int) -> list[Row]:
    rng = np.random.default_rng(seed)
    start = rng.integers(0, 1000, prompt)
    ids = [np.concatenate([start, rng.integers(0, 1000, answer)]) for _ in range(size)]
    nothing = np.zeros(answer, np.float32)
    return [
        Row(f"g{seed}-{n}", one, np.arange(prompt - 1, prompt + answer - 1), nothing, nothing, 1)
        for n, one in enumerate(ids)
    ]


@given(
    shapes=st.lists(st.tuples(st.integers(1, 9), st.integers(8, 400), st.integers(2, 200)), min_size=1, max_size=6),
    budget=st.integers(100, 3000),
    ranks=st.integers(1, 4),
)
@settings(max_examples=60, deadline=None)
def test_what_is_shared_counts_once_towards_the_budget(
    shapes: list[tuple[int, int, int]], budget: int, ranks: int
) -> None:
    rows = [row for seed, shape in enumerate(shapes) for row in group(*shape, seed)]
    packed = pack(list(range(len(rows))), rows, budget, ranks, shared=8)
    assert sorted(i for passes in packed for held in passes for i in held) == list(range(len(rows)))
    assert len({len(passes) for passes in packed}) == 1
    for held in chain(*packed):
        assert len(held) < 2 or computed(held, rows) <= budget


def computed(held: list[int], rows: list[Row]) -> int:
    return len(tree_of([rows[i].ids for i in held], 8).ids) if held else 0


def test_a_group_meets_in_one_pass_and_its_prompt_is_computed_once() -> None:
    rows = [row for seed in range(6) for row in group(8, 300, 40, seed)]
    scattered = np.random.default_rng(0).permutation(len(rows)).tolist()
    packed = pack(scattered, rows, 1300, 2, shared=8)
    assert sum(computed(held, rows) for held in chain(*packed)) == 6 * (300 + 8 * 40)
    assert all(len({i // 8 for i in held}) == len(held) / 8 for held in chain(*packed) if held)


def test_a_group_is_cut_where_ranks_would_wait_for_one_of_them() -> None:
    rows = group(8, 100, 200, 0)
    first, second = pack(list(range(8)), rows, 4000, 2, shared=8)
    loads = [computed(held, rows) for held in (*first, *second)]
    assert loads == [100 + 4 * 200] * 2


def test_a_group_stays_in_one_step_where_it_fits() -> None:
    rows = [replace(row(5), name=f"r{i}", group=f"g{i // 4}") for i in range(32)]
    plan = minibatches(rows, config(minibatch=8))
    assert [len(chosen) for chosen in plan] == [8] * 4
    assert all(len({i // 4 for i in chosen}) == 2 for chosen in plan)
    assert [len(chosen) for chosen in minibatches(rows, config(minibatch=3))][:3] == [3, 3, 3]


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


def test_a_look_at_all_rows_takes_them_in_blocks_that_part_no_group() -> None:
    rows = [replace(row(5), name=f"r{i}", group=f"g{i % 200}") for i in range(1600)]
    parts = blocks(range(1600), rows)
    assert sorted(chain(*parts)) == list(range(1600))
    assert [len(part) for part in parts] == [BLOCK] * 5 + [1600 - 5 * BLOCK]  # a last one under half is merged
    assert all(len({i % 200 for i in part}) == len(part) / 8 for part in parts)
    assert blocks([7, 3], rows) == [[7, 3]]
    assert list(chain(*blocks([], rows))) == []
    one_group = [replace(one, group="g") for one in rows]
    assert max(len(part) for part in blocks(range(1600), one_group)) < 2 * BLOCK


def test_what_packing_costs_grows_with_the_number_of_rows() -> None:
    rows = [one for seed in range(500) for one in group(8, 300, 600, seed)]
    rows = [replace(one, group=f"g{i // 8}") for i, one in enumerate(rows)]
    started = process_time()
    for block in blocks(range(4000), rows):
        pack(block, rows, 2048, 2, shared=32)
    assert process_time() - started < 2  # all at once, and with a search for every row: 14 s
