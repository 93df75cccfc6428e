"""Between two versions: what changed, where success fell, and what did most to the training set."""

import pytest

from lakehouse.label import label
from lakehouse.lineage.bisect import NotComparable, bisect


def group(make, run, version, *, problem="p", matches=(True, False, True, False), **changes):
    calls = [make.call([1], [2, 3], version=version, **changes)]
    return make.group(matches, problem, run=run, calls=calls)


def evaluated(line, make, version, solved):
    """Ten held-out episodes of a version, so many of them solved."""
    matches = [index < solved for index in range(10)]
    make.group(matches, run=f"eval{version}", purpose="eval:x", split="eval", model_version=version).land(line.lake)
    label(line.lake, "search@2")


def changed(found):
    return {(one.aspect, one.item) for one in found.changes if (one.older, one.newer) == found.suspect}


def test_another_filter_is_named(line, make):
    line.train(2, group(make, "a", 1))
    line.train(3, group(make, "b", 2), filter="grpo+solved")
    found = bisect(line.lake, "toy@2", "toy@3")
    assert (found.path, found.descends, found.suspect) == ([2, 3], True, (2, 3))
    assert ("filter", "solved") in changed(found)
    (effect,) = found.effects
    assert (effect.what, effect.episodes, effect.episodes_without, effect.only_without) == ("filter", 2, 4, 2)
    assert effect.share == pytest.approx(0.5)
    assert found.verdict == "most likely the filter: it changed 50% of the training signal"


def test_another_way_to_advantages_is_named(line, make):
    """A group of two and two: GRPO divides by the deviation of 0.577, Dr.GRPO does not."""
    line.train(2, group(make, "a", 1))
    line.train(3, group(make, "b", 2), advantage="dr_grpo")
    found = bisect(line.lake, "toy@2", "toy@3")
    assert ("selection", "advantage") in changed(found)
    (effect,) = found.effects
    assert (effect.what, effect.episodes, effect.only_now, effect.only_without) == ("advantage", 4, 0, 0)
    assert effect.share == pytest.approx(1 - 3**-0.5, abs=1e-3)


def test_another_rubric_is_named_by_how_far_advantages_moved(line, make):
    """search@1 and search@2 shape alike here, so a swap moves nothing; the change is listed all the same."""
    line.judges = ["search@1", "search@2"]
    line.train(2, group(make, "a", 1), rubrics=["search@1"])
    line.train(3, group(make, "b", 2))
    found = bisect(line.lake, "toy@2", "toy@3")
    assert ("rubric", "search") in changed(found)
    assert all(effect.what == "rubric" for effect in found.effects)


def test_a_rubric_that_has_not_judged_the_newer_episodes_is_not_measured(line, make):
    line.judges = ["search@1"]
    line.train(2, group(make, "a", 1), rubrics=["search@1"])
    line.judges = ["search@2"]
    line.train(3, group(make, "b", 2))
    found = bisect(line.lake, "toy@2", "toy@3")
    assert found.effects == []
    assert found.not_measured.startswith("search@1 has not judged")


def test_other_data_and_another_engine_are_named(line, make):
    line.train(2, group(make, "a", 1))
    batch = group(make, "b", 2) + group(make, "b", 2, problem="q", engine_version="9")
    line.train(3, batch)
    found = bisect(line.lake, "toy@2", "toy@3")
    assert {("data", "elsewhere"), ("engine", "9 d")} <= changed(found)
    assert {effect.what: effect.share for effect in found.effects} == pytest.approx({"data": 0.5, "engine": 0.5})


def test_the_step_at_which_success_fell_is_looked_into(line, make):
    line.train(2, group(make, "a", 1))
    line.train(3, group(make, "b", 2), filter="grpo+solved")
    line.train(4, group(make, "c", 3), filter="grpo+solved")
    for version, solved in ((2, 8), (3, 3), (4, 4)):
        evaluated(line, make, version, solved)
    found = bisect(line.lake, "toy@2", "toy@4")
    assert (found.path, found.suspect, found.fell) == ([2, 3, 4], (2, 3), pytest.approx(0.5))
    assert [effect.what for effect in found.effects] == ["filter"]


def test_without_any_change_it_was_chance_or_the_code(line, make):
    line.train(2, group(make, "a", 1))
    line.train(3, group(make, "b", 2))
    found = bisect(line.lake, "toy@2", "toy@3")
    assert found.effects == []
    assert found.verdict.startswith("nothing that was selected changed by more than 1%; what is left is code")


def test_versions_that_cannot_be_compared(line, make):
    line.train(2, group(make, "a", 1))
    with pytest.raises(NotComparable, match="two different versions"):
        bisect(line.lake, "toy@2", "toy@2")
    found = bisect(line.lake, "toy@1", "toy@2")
    assert "not trained on a training set" in found.not_measured
