from lakehouse import ingesting
from lakehouse.write import Writer


def test_what_landed_and_what_a_flow_dispatched_is_not_missing(lake, make):
    batch = make.batch("p")
    batch.land(lake)
    own = make.dispatch("q")
    Writer(lake).append("dispatches", [own])
    sessions = {
        batch.episodes[0].episode_id: "p",
        "ep-of-a-flow": own.episode_id,
        "ep-new": "shop/1",
        "ep-newer": "shop/1",
    }
    assert ingesting.missing(lake, sessions) == {"ep-new", "ep-newer"}


def test_an_empty_lake_misses_everything_and_nothing_is_missing_of_nothing(lake):
    assert ingesting.missing(lake, {"ep-1": "t"}) == {"ep-1"}
    assert ingesting.missing(lake, {}) == set()


def test_the_newest_edition_of_a_problem_is_known(lake, make):
    Writer(lake).put_problems([make.problem("a"), make.problem("b")])
    Writer(lake).put_problems([make.problem("a", prompt="better")])
    known = ingesting.problems(lake, ["a", "nobody's"])
    assert list(known) == ["a"] and known["a"].prompt == "better" and known["a"].edition
