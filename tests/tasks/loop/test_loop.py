"""The orchestration, on a clock that jumps: what is trained on, in which order, and what a kill at any moment leaves."""

import asyncio
import random

import pytest

from tasks.loop.admission import Terms
from tasks.loop.book import Book
from tasks.loop.loop import Starved
from tasks.loop.parts import Settled, Standing, State


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_every_step_is_done_within_the_age_that_is_allowed(world, staleness):
    made = world(staleness=staleness, steps=12)
    turns = made.run()
    assert [turn.number for turn in turns] == list(range(12))
    assert made.lake.served == list(range(1, 14))
    assert made.most["age"] <= staleness
    assert made.most["beyond admission"] <= 0
    assert made.most["in flight"] <= (staleness + 1) * 4
    assert made.lake.examined == [(number, number + 2) for number in range(12)]


def test_with_a_staleness_of_nothing_all_is_sampled_by_the_version_that_is_trained(world):
    made = world(staleness=0)
    made.run()
    assert all(len(one) == 1 for _, settled in made.lake.groups.values() for one in settled.scored)
    assert len(made.lake.groups) == 20  # nothing more was begun than was trained on


def test_collecting_and_training_overlap_so_the_loop_takes_less_time_and_some_episodes_see_two_versions(world):
    took = {}
    for staleness in (0, 2):
        made = world(staleness=staleness, steps=20, seed=3)
        took[staleness] = sum(sum(turn.seconds.values()) for turn in made.run())
    assert took[2] < 0.7 * took[0]
    assert any(len(one) > 1 for _, settled in made.lake.groups.values() for one in settled.scored)


def test_places_bound_what_is_in_flight(world):
    made = world(staleness=3, max_in_flight=2)
    made.run()
    assert made.most["in flight"] == 2


@pytest.mark.parametrize("seed", range(20))
def test_a_loop_killed_at_any_moments_trains_every_batch_once_and_skips_no_version(world, seed):
    draw = random.Random(seed)
    made = world(staleness=draw.choice([0, 1, 4]), steps=8, seed=seed)
    kills = 0
    while made.run(cancelled_after=draw.uniform(0.05, 40)) is None:
        kills += 1
        assert kills < 2000
    assert kills
    assert [finished for _, _, finished in made.lake.steps.values()] == [True] * 8
    assert made.lake.served == list(range(1, 10))
    assert made.most["age"] <= made.terms.staleness
    assert made.most["beyond admission"] <= 0
    assert set(made.lake.examined) == {(number, number + 2) for number in range(8)}


def test_what_was_sampled_long_before_a_recovery_is_dropped_and_replaced(world):
    made = world(staleness=1, steps=6)
    made.run(cancelled_after=12)
    made.lake.served += [2, 3, 4, 5, 6]  # somebody trained on by hand while the loop was away
    before = {name for name, (_, settled) in made.lake.groups.items() if settled is not None}
    made.run()
    assert made.most["age"] <= 1
    assert any("stale" in said for said in made.said)
    in_steps = set().union(*(groups for groups, _, _ in made.lake.steps.values()))
    assert before <= in_steps  # dropped, and accounted for


def test_where_somebody_moves_the_champion_while_a_step_is_trained_the_next_one_begins_from_it(world):
    made = world(staleness=0, steps=4)
    train = made.train

    async def moved(number, groups):
        version = await train(number, groups)
        if number == 1:
            made.lake.served.append(1)
        return version

    made.train = moved
    turns = made.run()
    assert made.lake.served == [1, 2, 1, 4, 5]
    assert made.lake.parents == {2: 1, 3: 2, 4: 1, 5: 4}
    assert made.lake.examined == [(0, 2), (2, 4), (3, 5)]
    assert ["release" in turn.seconds for turn in turns] == [True, False, True, True]


def test_where_somebody_moves_the_champion_while_a_batch_is_waited_for_the_loop_goes_on_from_it(world):
    """What is sampled from then on counts at once; what the version before sampled does not any more."""
    made = world(staleness=0, steps=4, starved_s=1000)
    examine = made.examine

    async def moved(number, version):
        await examine(number, version)
        if number == 1:
            asyncio.get_running_loop().call_later(0.5, made.lake.served.append, 1)

    made.examine = moved
    turns = made.run()
    assert made.lake.served == [1, 2, 3, 1, 4, 5]
    assert made.lake.parents == {2: 1, 3: 2, 4: 1, 5: 4}
    assert [turn.version for turn in turns] == [2, 3, 4, 5]


def test_groups_that_failed_are_replaced_and_the_batch_is_whole(world):
    made = world(outcome=lambda problem, draw: None if draw.random() < 0.6 else float(draw.random() < 0.5), steps=4)
    made.run()
    for groups, _, _ in made.lake.steps.values():
        assert sum(len(made.lake.groups[name][1].scored) >= 2 for name in groups) == 4


def test_a_group_that_is_not_whole_is_replaced_where_that_is_asked_for(world):
    made = world(
        partial="drop",
        steps=4,
        outcome=lambda problem, draw: None if draw.random() < 0.1 else float(draw.random() < 0.5),
    )
    made.run()
    for groups, _, _ in made.lake.steps.values():
        assert sum(len(made.lake.groups[name][1].scored) == 4 for name in groups) == 4


def test_filling_replaces_groups_without_variance(world):
    made = world(fill=True, steps=4, outcome=lambda problem, draw: float(hash(problem) % 3 == 0 or draw.random() < 0.3))
    made.run()
    for groups, version, _ in made.lake.steps.values():
        assert version is not None
        assert sum(made.lake.groups[name][1].spread > 0 for name in groups) == 4


def test_a_batch_without_variance_is_passed_over_and_the_next_one_is_trained(world):
    solved = iter([0.0] * 16)
    made = world(staleness=0, steps=3, outcome=lambda problem, draw: next(solved, float(draw.random() < 0.5)))
    assert [turn.version for turn in made.run()] == [None, 2, 3]


def trained_then_not(trained):
    """Outcomes that differ for so many batches of four groups with four samples, and are the same from then on."""
    solved = iter([0.0, 1.0] * 8 * trained)
    return lambda problem, draw: next(solved, 0.0)


@pytest.mark.parametrize(
    ("trained", "terms", "examined"),
    [
        (3, {"steps": 4, "evaluate_every": 5}, [(3, 4)]),  # the last step has nothing to train on
        (3, {"steps": 4, "evaluate_every": 2}, [(1, 3), (3, 4)]),
        (1, {"steps": 3, "evaluate_every": 2}, [(1, 2)]),  # a due step in the middle; nothing new comes after it
        (2, {"steps": 4}, [(0, 2), (1, 3)]),  # what was examined is not examined again
        (0, {"steps": 2}, []),  # nothing of its own
    ],
)
def test_what_was_trained_is_examined_though_the_due_step_is_passed_over(world, trained, terms, examined):
    made = world(staleness=0, outcome=trained_then_not(trained), **terms)
    made.run()
    assert made.lake.examined == examined


def test_a_loop_killed_before_it_examined_after_a_step_that_was_passed_over_does_so_when_it_goes_on(world):
    made = world(staleness=0, steps=3, evaluate_every=3, outcome=trained_then_not(2))
    examine = made.examine

    async def killed(number, version):
        raise OSError

    made.examine = killed
    with pytest.raises(OSError):
        made.run()
    assert [version for _, version, _ in made.lake.steps.values()] == [2, 3, None]
    made.examine = examine
    made.run()
    assert made.lake.examined == [(2, 3)]


def test_a_problem_that_only_fails_is_not_drawn_any_more_and_it_is_said(world):
    made = world(
        problems=6, steps=8, outcome=lambda problem, draw: None if problem == "p1" else float(draw.random() < 0.5)
    )
    made.run()
    assert sum(problem == "p1" for problem, _ in made.lake.groups.values()) == 2
    assert [said for said in made.said if "p1 is not drawn any more" in said and "8 env_error" in said]


@pytest.mark.parametrize("ending", ["infra_error", "cancelled", "erased"])
def test_an_outage_that_meets_every_problem_is_held_against_none_of_them(world, ending):
    met = iter([ending] * 12 * 4)
    made = world(problems=6, outcome=lambda problem, draw: next(met, None) or float(draw.random() < 0.5))
    turns = made.run()
    assert len(turns) == 5
    assert not made.loop.book.poison


@pytest.mark.parametrize(("blameless", "struck"), [(0, True), (1, True), (2, False), (4, False)])
def test_a_group_counts_against_its_problem_where_it_would_have_failed_without_the_outage_too(blameless, struck):
    failures = {"env_error": 4 - blameless, "infra_error": blameless}
    state = State([Settled(f"g{number}", "p", 4, [], 0.0, failures) for number in range(2)])
    assert bool(Book(Terms(batch=4, steps=1), state, Standing(1, frozenset({1}))).poison) == struck


def test_problems_that_fail_now_and_then_stay(world):
    made = world(problems=6, steps=20, seed=5, outcome=lambda problem, draw: None if draw.random() < 0.5 else 1.0)
    made.run()
    assert not made.loop.book.poison


def test_where_nothing_can_be_scored_the_loop_ends_and_says_why(world):
    made = world(outcome=lambda problem, draw: None)
    with pytest.raises(
        Starved, match=r"the last \d+ groups cannot be trained on\. step 1 of 5 has 0 of 4 groups, 0 are in "
    ) as told:
        made.run()
    assert f"dropped: {len(made.lake.groups)} not_trainable" in str(told.value)
    assert 16 <= len(made.lake.groups) < 20  # four batches, and what was in flight


def test_where_nothing_comes_the_loop_ends_and_says_for_how_long_it_waited(world):
    made = world(seconds=lambda draw: 1e9, starved_s=1000)
    with pytest.raises(Starved, match=r"for 1000 s no group came .* step 1 of 5 has 0 of 4 groups, 4 are in flight"):
        made.run()


def test_a_part_that_fails_ends_the_loop_with_its_own_error(world):
    made = world()

    async def broken(number, groups):
        raise OSError("no space left")

    made.train = broken
    with pytest.raises(OSError, match="no space left"):
        made.run()
