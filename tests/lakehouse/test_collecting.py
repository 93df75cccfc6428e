from lakehouse.collecting import remaining
from lakehouse.query import query
from lakehouse.write import Writer


def test_remaining_is_dispatched_minus_landed(lake, make):
    dispatches = [make.dispatch(sample=i) for i in range(3)]
    Writer(lake).append("dispatches", dispatches, transaction="r")
    make.batch(sample=1).land(lake)
    assert remaining(lake, "r") == [dispatches[0], dispatches[2]]


def test_another_runs_dispatches_are_not_ours(lake, make):
    Writer(lake).append("dispatches", [make.dispatch(run="other")])
    assert remaining(lake, "r") == []


def test_an_episode_dispatched_twice_remains_once(lake, make):
    for _ in range(2):
        Writer(lake).append("dispatches", [make.dispatch()])
    assert len(remaining(lake, "r")) == 1
    assert query("from dispatches", lake).height == 1


def test_a_failed_episode_that_landed_does_not_remain(lake, make):
    """Running it again would bias the sample towards what survives; a retry is the runner's, before landing."""
    Writer(lake).append("dispatches", [make.dispatch()])
    make.batch(status="infra_error", match=None).land(lake)
    assert remaining(lake, "r") == []
