"""One version onto several engines: who decides, who is left out, what stays."""

import threading

import pytest

from tasks.serving.errors import EngineError
from tasks.serving.proof import Proof
from tasks.serving.rolling import roll


def proof(*, passed=True):
    return Proof(
        version=2, sequences=1, tokens=1, longest=2, heated_tokens=0, temperature=0.7, mean_difference=0.0,
        max_difference=0.0, mean_movement=None, changed=None, passed=passed, reason="they agree" if passed else "they differ",
    )  # fmt: skip


class Fleet:
    """Engines by name; what is done to them, in order. `trouble` says what goes wrong where."""

    def __init__(self, **trouble):
        self.trouble, self.done = trouble, []

    def deploy(self, url):
        self.done.append(("deploy", url))
        trouble = self.trouble.get(url)
        if isinstance(trouble, Exception):
            raise trouble
        return trouble or proof()

    def roll(self, urls="abc", **more):
        def noted(what):
            return lambda url: self.done.append((what, url))

        return roll(list(urls), self.deploy, put_back=noted("put back"), leave_out=noted("leave out"), **more)


def test_engines_are_swapped_one_after_another():
    fleet = Fleet()
    assert [one.served for one in fleet.roll()] == [True, True, True]
    assert fleet.done == [("deploy", "a"), ("deploy", "b"), ("deploy", "c")]


@pytest.mark.parametrize("trouble", [proof(passed=False), EngineError("it broke")])
def test_where_the_first_one_fails_it_is_put_back_and_no_other_is_touched(trouble):
    fleet = Fleet(a=trouble)
    [first] = fleet.roll()
    assert not first.served
    assert first.reason in ("they differ", "it broke")
    assert fleet.done == [("deploy", "a"), ("put back", "a")]


@pytest.mark.parametrize("trouble", [proof(passed=False), EngineError("it broke")])
def test_a_later_one_that_fails_is_left_out_and_the_others_go_on(trouble):
    fleet = Fleet(b=trouble)
    assert [one.served for one in fleet.roll()] == [True, False, True]
    assert fleet.done == [("deploy", "a"), ("deploy", "b"), ("leave out", "b"), ("deploy", "c")]


def test_a_few_at_once_wait_for_the_first_and_for_the_group_before():
    """Each swap takes until all of its group have begun: a group that is smaller, or one after another, would break the barrier."""
    groups = [["a"], ["b", "c"], ["d", "e"]]
    barriers = {url: threading.Barrier(len(group)) for group in groups for url in group}
    together = {url: next(barriers[group[0]] for group in groups if url in group) for url in barriers}
    under_way, most, done = set(), [], []

    class Slow(Fleet):
        def deploy(self, url):
            under_way.add(url)
            together[url].wait(10)
            most.append(set(under_way))
            together[url].wait(10)
            under_way.discard(url)
            done.append(url)
            return super().deploy(url)

    fleet = Slow(d=EngineError("it broke"))
    assert [(one.url, one.served) for one in fleet.roll("abcde", at_once=2)] == [
        ("a", True), ("b", True), ("c", True), ("d", False), ("e", True)
    ]  # fmt: skip
    assert sorted(map(sorted, most)) == [["a"], ["b", "c"], ["b", "c"], ["d", "e"], ["d", "e"]]
    assert [set(done[:1]), set(done[1:3]), set(done[3:])] == [{"a"}, {"b", "c"}, {"d", "e"}]
    assert ("leave out", "d") in fleet.done


def test_one_that_fails_is_left_out_while_a_slower_one_of_its_group_is_still_swapped():
    left = threading.Event()

    def deploy(url):
        if url == "c":
            raise EngineError("it broke")
        if url == "b":
            assert left.wait(10)
        return proof()

    def leave_out(url):
        assert url == "c"
        left.set()

    outcomes = roll(list("abc"), deploy, put_back=lambda _: None, leave_out=leave_out, at_once=2)
    assert [one.served for one in outcomes] == [True, True, False]


def test_a_fault_of_ours_on_one_ends_it_once_the_others_of_its_group_are_left_out():
    left = []

    def deploy(url):
        if url == "b":
            raise KeyError("a fault")
        if url == "c":
            raise EngineError("it broke")
        return proof()

    with pytest.raises(KeyError):
        roll(list("abc"), deploy, put_back=lambda _: None, leave_out=left.append, at_once=2)
    assert left == ["c"]


def test_where_the_first_one_fails_no_other_is_touched_however_many_at_once():
    fleet = Fleet(a=EngineError("it broke"))
    assert len(fleet.roll(at_once=3)) == 1
    assert fleet.done == [("deploy", "a"), ("put back", "a")]
