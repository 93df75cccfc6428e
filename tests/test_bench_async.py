"""The simulation of the loop: what it computes can be computed by hand, and the loop keeps to its bound in it."""

import asyncio
import random
from dataclasses import replace
from itertools import pairwise

import pytest

from benchmarks.async_clock import Jumping
from benchmarks.async_devices import SMALL, Engine, Work
from benchmarks.async_shapes import SHAPES, Episode, Shape, Turn
from benchmarks.async_sim import TooOld, recover, run, shared, told, world
from benchmarks.async_world import BEGIN_S, PROVE_S, SETTLE_S, STORE_S, SWAP_S, Split

PROMPT, TOKENS = 100, 2000
CONSTANT = Shape("constant", SMALL, 4, batch=8, samples=4, draw=lambda draw: Episode([Turn(PROMPT, TOKENS)]))
TAIL = replace(
    CONSTANT, name="tail", draw=lambda draw: Episode([Turn(PROMPT, 1 + int(min(20_000, draw.lognormvariate(7, 1.2))))])
)


def by_hand(sampling, training):
    """Seconds of a synchronous step of the constant workload."""
    running = CONSTANT.batch * CONSTANT.samples // sampling
    prefill = running * PROMPT * SMALL.prefill_s
    context = running * (PROMPT * TOKENS + TOKENS**2 / 2)  # token of context, over all steps
    decode = TOKENS * SMALL.base_s + context * SMALL.context_s
    train = CONSTANT.batch * CONSTANT.samples * TOKENS * SMALL.train_s / training
    return BEGIN_S + prefill + decode + SETTLE_S + train + STORE_S + SWAP_S + PROVE_S


def jumping(main):
    with asyncio.Runner(loop_factory=Jumping) as runner:
        return runner.run(main)


def test_a_synchronous_step_of_equal_episodes_takes_what_is_computed_by_hand():
    found = run(world(CONSTANT, 0, shared(CONSTANT), 5))
    assert found.step_s == pytest.approx(by_hand(4, 4), rel=1e-6)
    assert found.sampled.tokens == pytest.approx(found.steps * 32 * TOKENS)
    assert found.dropped == 0


def test_no_staleness_on_parted_devices_takes_turns_as_well():
    found = run(world(CONSTANT, 0, Split(2, 2), 5))
    assert found.step_s == pytest.approx(by_hand(2, 2), rel=1e-6)
    assert found.ages == {0: 5 * 32}


def test_what_is_sampled_is_trained_or_dropped_or_was_still_under_way():
    made = world(TAIL, 1, Split(3, 1), 8)
    run(made)
    assert made.trained + made.lost == pytest.approx(made.sampled.tokens, abs=1)


@pytest.mark.parametrize("staleness", [0, 1, 2, 4])
@pytest.mark.parametrize("swap", ["keep", "drain", "wait", "abort"])
def test_nothing_older_than_the_bound_is_trained_on(staleness, swap):
    found = run(world(TAIL, staleness, Split(2, 2), 14, swap=swap))
    assert max(found.ages) <= staleness
    assert sum(found.ages.values()) > 12 * 32


def test_a_violation_of_the_bound_is_an_error():
    made = world(TAIL, 1, Split(2, 2), 6)
    run(made)
    made.ages[2] += 1
    with pytest.raises(TooOld, match="2 versions old, the bound is 1"):
        told(made)


def test_more_staleness_is_never_slower_beyond_noise():
    steps_s = [run(world(TAIL, staleness, Split(3, 1), 30)).step_s for staleness in (0, 1, 2, 4, 8)]
    for tighter, looser in pairwise(steps_s):
        assert looser < 1.05 * tighter
    assert steps_s[-1] < 0.7 * steps_s[0]


def test_a_swap_in_flight_costs_the_pause_and_the_caches():
    async def taken(swapped):
        work = Work()
        engine = Engine(SMALL, 1, work)
        sampling = asyncio.ensure_future(engine.sample(1000, context=500, prefill=0))
        await asyncio.sleep(1.0)
        cached = 500 + work.tokens
        if swapped:
            engine.look()
            cached = 500 + work.tokens
            engine.keep(2, 3.0)
        versions = await sampling
        return asyncio.get_running_loop().time(), versions, cached

    before, one, _ = jumping(taken(False))
    after, both, cached = jumping(taken(True))
    assert (one, both) == ({1}, {1, 2})
    assert after - before == pytest.approx(3.0 + cached * SMALL.prefill_s)


def test_sequences_beyond_the_slots_wait():
    async def taken(sequences):
        engine = Engine(replace(SMALL, slots=2), 1, Work())
        await asyncio.gather(*(engine.sample(100, context=0, prefill=0) for _ in range(sequences)))
        return asyncio.get_running_loop().time()

    assert jumping(taken(4)) == pytest.approx(2 * jumping(taken(2)))


def test_a_loop_that_is_killed_comes_to_the_same_end_later():
    found = recover(TAIL, 2, Split(3, 1), 10, kills=3)
    assert found.extra_s > 0
    assert found.tokens > 0


def test_nothing_to_wait_for_is_said_and_not_waited_for():
    async def waits():
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="a deadlock"):
        jumping(waits())


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_every_workload_can_be_drawn(shape):
    drawn = [shape.draw(random.Random(seed)) for seed in range(50)]
    assert all(episode.tokens > 0 and episode.outside_s >= 0 for episode in drawn)
    assert drawn == [shape.draw(random.Random(seed)) for seed in range(50)]
