"""One version onto several engines: who decides, who is left out, what stays."""

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

    def roll(self):
        def noted(what):
            return lambda url: self.done.append((what, url))

        return roll(["a", "b", "c"], self.deploy, put_back=noted("put back"), leave_out=noted("leave out"))


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
