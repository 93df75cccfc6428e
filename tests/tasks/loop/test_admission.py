"""Admission by age, what counts, and terms that cannot work out."""

import pytest

from tasks.loop.admission import Infeasible, Terms, capacity, check, drops
from tasks.loop.parts import Settled, Standing

STANDING = Standing(5, frozenset(range(6)))


def settled(*scored, samples=4, spread=1.0, **failures):
    return Settled("g", "p", samples, [frozenset(one) for one in scored], spread, failures)


@pytest.mark.parametrize(
    ("staleness", "turns", "accepted", "running", "admitted"),
    [
        (0, 0, 0, 0, 4),  # a batch, and then nothing until it is trained on
        (0, 0, 3, 1, 0),
        (0, 1, 4, 0, 4),
        (2, 0, 0, 0, 12),  # two batches ahead
        (2, 1, 9, 3, 4),
        (2, 1, 20, 3, 0),  # accepted before the bound was lowered: never negative
        (2, 9, 36, 0, 4),  # ten steps in all: no more than they can use
        (2, 10, 40, 0, 0),
    ],
)
def test_capacity_is_the_formula(staleness, turns, accepted, running, admitted):
    terms = Terms(batch=4, steps=10, staleness=staleness)
    assert capacity(terms, turns=turns, accepted=accepted, running=running) == admitted


def test_places_bound_capacity():
    terms = Terms(batch=4, steps=10, staleness=2, max_in_flight=5)
    assert capacity(terms, turns=0, accepted=0, running=0) == 5
    assert capacity(terms, turns=0, accepted=2, running=5) == 0


@pytest.mark.parametrize(
    ("group", "why"),
    [
        (settled([5], [5], [5], [5]), None),
        (settled([4, 5], [5], [5], [3]), None),  # two fresh ones are enough
        (settled([3], [3], [5]), "stale"),
        (settled([3, 5], [3, 4], [5]), "stale"),  # the oldest token counts
        (settled([7], [7], [5]), "not_an_ancestor"),
        (settled([5]), "singleton_group"),
        (settled(env_error=4), "not_trainable"),
        (settled([5], [5], spread=0.0), None),
    ],
)
def test_a_group_counts_with_two_fresh_samples(group, why):
    assert drops(group, Terms(batch=4, steps=1, samples=4, staleness=1), STANDING) == why


def test_age_is_counted_along_the_line_and_what_was_rolled_back_is_no_step():
    """Versions 5 to 7 were rolled back: 8 was trained from 4, one step later. After a roll-back no age is negative."""
    terms, line = Terms(batch=4, steps=1, samples=2, staleness=1), frozenset({3, 4, 8})
    assert drops(settled([4], [4, 8]), terms, Standing(8, line)) is None
    assert drops(settled([3, 4], [3, 8]), terms, Standing(8, line)) == "stale"
    assert drops(settled([7], [4, 7]), terms, Standing(8, line)) == "not_an_ancestor"
    assert drops(settled([5], [5]), terms, Standing(4, frozenset({3, 4}))) == "not_an_ancestor"


def test_a_group_counts_only_whole_where_partial_ones_are_dropped():
    terms = Terms(batch=4, steps=1, samples=4, staleness=1, partial="drop")
    assert drops(settled([5], [5], [5]), terms, STANDING) == "partial_group"
    assert drops(settled([5], [5], [5], [3]), terms, STANDING) == "stale"
    assert drops(settled([5], [5], [5], [4]), terms, STANDING) is None


def test_without_variance_a_group_does_not_count_where_batches_are_filled():
    assert drops(settled([5], [5], spread=0.0), Terms(batch=4, steps=1, fill=True), STANDING) == "zero_variance_group"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"staleness": -1}, "staleness is -1: it is a number of versions, 0 or more"),
        ({"batch": 0}, "a batch is 0 problems"),
        ({"steps": 0}, "0 rounds"),
        ({"evaluate_every": 0}, "an evaluation every 0 steps: ask for at least 1"),
        ({"samples": 1}, "1 samples: a group's baseline needs at least 2"),
        ({"max_in_flight": 0}, "less than one group in flight never makes a batch"),
        ({"deadline_s": 901.0}, "an episode may take 901 s and its whole group 900 s"),
        ({"starved_s": 900.0}, "would give up after 900 s without a group, while one may take 900 s"),
        ({"batch": 21}, "a batch is 21 problems and 20 can be drawn"),
    ],
)
def test_terms_that_cannot_work_out_are_refused_with_what_to_change(changed, said):
    with pytest.raises(Infeasible, match=said):
        check(Terms(**{"batch": 4, "steps": 1} | changed), drawable=20)


def test_all_that_is_wrong_is_said_at_once():
    with pytest.raises(Infeasible, match=r"staleness is -1.*; a batch is 0"):
        check(Terms(batch=0, steps=1, staleness=-1))


def test_defaults_are_feasible():
    check(Terms(batch=4, steps=1), drawable=4)
