"""The order of a canary, over scripted parts: what it asks, what it decides, when it ends."""

import asyncio

import pytest

from lakehouse.evaluation.sequential import Comparison, compare
from tasks.canary import CanaryImpossible, GatewayAway, chosen, page, patiently
from tasks.canary import Setting as Canary
from tasks.serving.canary import Decision, Terms, decide, drain, watch

TERMS = Terms(
    share=0.1, tolerance=0.0, deadline_s=60, poll_s=0.001, drain_s=60,
    if_not_worse="promote", if_worse="roll_back", if_undecided="ask",
)  # fmt: skip


def compared(low, high):
    return Comparison(900, 100, 0.5, 0.5 + (low + high) / 2, low, high, 0.95)


class Scripted:
    """Parts that answer from lists; the last entry repeats."""

    def __init__(self, comparisons, lost=(None,), left=(0,)):
        self.comparisons, self.losses, self.left = list(comparisons), list(lost), list(left)
        self.done = []

    @staticmethod
    def next(answers):
        return answers.pop(0) if len(answers) > 1 else answers[0]

    async def part(self, share, for_s):
        assert for_s >= 300
        self.done.append(share)

    async def open_sessions(self, which):
        self.done.append(which)
        return self.next(self.left)

    async def compare(self):
        return self.next(self.comparisons)

    async def lost(self):
        return self.next(self.losses)


@pytest.mark.parametrize(
    ("ends", "policy", "action"),
    [
        ((0.01, 0.2), {}, "promote"),
        ((0.01, 0.2), {"if_not_worse": "ask"}, "ask"),
        ((-0.3, -0.1), {}, "roll_back"),
        ((-0.3, -0.1), {"if_worse": "ask"}, "ask"),
        ((-0.04, 0.1), {"tolerance": 0.05}, "promote"),
        ((-0.3, -0.06), {"tolerance": 0.05}, "roll_back"),
    ],
)
async def test_it_ends_as_soon_as_the_versions_are_told_apart_and_does_what_the_policy_says(ends, policy, action):
    parts = Scripted([compared(-0.5, 0.5), compared(-0.4, 0.3), compared(*ends)])
    seen = []
    decision = await watch(parts, Terms(**{**vars(TERMS), **policy}), seen.append)
    assert decision.action == action
    assert "over 100 sessions of the challenger and 900 of the champion" in decision.reason
    assert parts.done == [0.1] * 3  # the lease is renewed at every look
    assert len(seen) == 3


@pytest.mark.parametrize("undecided", ["ask", "roll_back", "promote"])
async def test_at_the_deadline_it_ends_undecided_as_the_policy_says(undecided):
    terms = Terms(**{**vars(TERMS), "deadline_s": 0.02, "if_undecided": undecided})
    decision = await asyncio.wait_for(watch(Scripted([compared(-0.5, 0.5)]), terms), 10)
    assert (decision.action, "not told apart in time" in decision.reason) == (undecided, True)


async def test_a_challenger_that_is_served_no_more_is_rolled_back_and_gets_no_session():
    parts = Scripted([compared(0.1, 0.2)], lost=["http://b: does not answer"])
    decision = await watch(parts, TERMS)
    assert decision.action == "roll_back"
    assert "is not served any more: http://b: does not answer" in decision.reason
    assert parts.done == []


@pytest.mark.parametrize(
    ("action", "share", "leaving"),
    [("promote", 1.0, "champion"), ("roll_back", 0.0, "challenger"), ("ask", 0.0, "challenger")],
)
async def test_sessions_of_the_version_that_goes_are_waited_for_and_new_ones_go_to_the_other(action, share, leaving):
    parts = Scripted([compared(0, 0)], left=[3, 1, 0])
    assert await drain(parts, action, TERMS) == 0
    assert parts.done == [share, leaving] * 3


async def test_sessions_that_do_not_end_are_not_waited_for_for_ever():
    terms = Terms(**{**vars(TERMS), "drain_s": 0.02})
    assert await asyncio.wait_for(drain(Scripted([compared(0, 0)], left=[2]), "promote", terms), 10) == 2


def test_without_a_reward_nothing_is_decided():
    assert decide(compare([], []), TERMS, lost=None, late=False) is None


LABELS = {"http://a": "4", "http://b": "4", "http://c": "4"}


def test_engines_for_the_challenger_leave_one_for_the_champion():
    assert chosen("http://a", LABELS, None, 4) == ["http://c"]
    assert chosen("http://a", LABELS, ["http://b/", "http://c"], 4) == ["http://b", "http://c"]


@pytest.mark.parametrize(
    ("labels", "wanted", "said"),
    [
        (
            {"http://a": "4"},
            None,
            "needs two engines behind the gateway, one for each version, and there is 1: start another",
        ),
        (LABELS, ["http://a"], "is the stack's own engine, which serves the champion"),
        (LABELS, ["http://x"], "the gateway has no engine http://x: it has http://a"),
        (
            {**LABELS, "http://a": "3", "http://b": "-1"},
            None,
            "left do not serve the champion, version 4: http://a serves '3'",
        ),
        ({**LABELS, "http://b": "7"}, None, "version 4: http://b serves '7'. Run `lakeloop reconcile`"),
    ],
)
def test_a_canary_that_cannot_be_is_refused_with_what_to_do(labels, wanted, said):
    with pytest.raises(CanaryImpossible, match=said):
        chosen("http://a", labels, wanted, 4)


async def test_a_server_that_is_away_for_a_moment_does_not_end_a_canary(monkeypatch):
    monkeypatch.setattr("tasks.canary.PAUSE_S", 0.001)
    answers = [GatewayAway("away"), GatewayAway("away"), "there"]

    async def act(what):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return what + answer

    assert await patiently(act, "it is ") == "it is there"
    answers[:] = [GatewayAway("away")] * 3
    with pytest.raises(GatewayAway):
        await patiently(act, "it is ", wait_s=0.0)
    answers[:] = [ValueError("a defect")]
    with pytest.raises(ValueError, match="a defect"):
        await patiently(act, "it is ")


def test_a_person_reads_what_was_decided_and_why():
    decision = Decision("ask", "not told apart in time", compared(-0.2, 0.3))
    text = page("tiny", Canary(4, 5, ["http://c"]), decision, {4: {"ok": 900, "infra_error": 1}, 5: {"ok": 100}}, 2)
    assert text.startswith("# Canary of tiny version 5 against 4: ask")
    assert "| 4 | 900 | 0.5 | 900 ok, 1 infra_error |" in text
    assert "2 sessions of the version that went had not ended in time" in text
