"""Placing a call among those before it."""

import random
import time
from datetime import UTC, datetime

import pytest

from lakehouse.records import Status
from sandboxes.gateway.sessions.recorded import Answer, Conversation, Intent, Recorded
from sandboxes.gateway.sessions.tree import Place, Tree

SYSTEM, USER = {"role": "system", "content": "s"}, {"role": "user", "content": "u"}
TALK = Conversation([SYSTEM, USER])


class Talk:
    """A session's calls, placed one after the other."""

    def __init__(self):
        self.calls = []
        self.tree = Tree(self.calls)

    def begin(self, prompt, *, conversation=TALK, retokenised=False):
        where = self.tree.place(prompt, conversation, retokenised=retokenised)
        intent = Intent(
            call_id=f"c{len(self.calls)}", call_index=len(self.calls), parent_call_id=where.parent_call_id,
            segment=where.segment, fork_reason=where.fork_reason, body_digest="", idempotency_key=None,
            first_choice=f"c{len(self.calls)}", messages=list(conversation.messages), tools=list(conversation.tools),
            template_kwargs={}, sampling={}, prompt_token_ids=prompt, token_route="generate", template_digest="",
            engine_version="", started_at=datetime.now(UTC),
        )  # fmt: skip
        self.calls.append(Recorded(intent))
        return where

    def end(self, at, completion, *, said="", status=Status.OK):
        message = said if isinstance(said, dict) else {"role": "assistant", "content": said}
        self.calls[at].answer = Answer(
            status=status, message=message if status.trainable else None, completion_token_ids=completion
        )

    def add(self, prompt, completion, **more):
        begun = {name: more.pop(name) for name in ("conversation", "retokenised") if name in more}
        where = self.begin(prompt, **begun)
        self.end(len(self.calls) - 1, completion, **more)
        return where


@pytest.fixture
def talk():
    return Talk()


def test_the_first_call_is_the_root_and_its_continuation_stays_in_its_segment(talk):
    assert talk.add([1, 2], [3]) == Place(None, 0, "root")
    assert talk.add([1, 2, 3, 4], [5]) == Place("c0", 0, None)


def test_the_parent_is_the_longest_true_prefix(talk):
    talk.add([1], [2])
    talk.add([1, 2, 3], [4])
    assert talk.add([1, 2, 3, 4, 5], []).parent_call_id == "c1"


def test_equal_ids_are_no_true_prefix(talk):
    talk.add([1], [2])
    assert talk.add([1, 2], []).parent_call_id is None


def test_a_second_child_begins_a_segment_with_its_parent_kept(talk):
    said = {"role": "assistant", "content": "yes"}
    talk.add([1], [2], said=said)
    talk.add([1, 2, 3], [4], conversation=Conversation([SYSTEM, USER, said, USER]))
    assert talk.add([1, 2, 3], [9], conversation=Conversation([SYSTEM, USER, said, USER])) == Place("c0", 1, "retry")
    other = Conversation([SYSTEM, USER, said, {"role": "user", "content": "or else"}])
    assert talk.add([1, 2, 7], [9], conversation=other) == Place("c0", 2, "other")


def test_a_call_that_failed_takes_no_place(talk):
    talk.add([1], [], status=Status.INFRA_ERROR)
    assert talk.add([1], [2]) == Place(None, 0, "root")
    talk.add([1, 2, 3], [4], status=Status.CANCELLED)
    assert talk.add([1, 2, 3], [5]) == Place("c1", 0, None)


def test_calls_that_run_side_by_side_see_each_other(talk):
    assert talk.begin([1]) == Place(None, 0, "root")
    assert talk.begin([1]) == Place(None, 1, "retry")
    talk.end(0, [2])
    assert talk.begin([1, 2, 3]) == Place("c0", 0, None)
    assert talk.begin([1, 2, 3]) == Place("c0", 2, "retry")


def test_a_conversation_that_the_engine_reads_as_other_ids_is_retokenised(talk):
    talk.add([1], [2])
    assert talk.add([7, 8], [6], retokenised=True) == Place(None, 1, "retokenised")


def test_a_subagents_own_turns_chain_in_its_segment(talk):
    talk.add([1], [2])
    helper = Conversation([{"role": "system", "content": "you help"}, USER])
    assert talk.add([5], [6], conversation=helper) == Place(None, 1, "subagent")
    assert talk.add([5, 6, 7], [8], conversation=helper) == Place("c1", 1, None)
    assert talk.add([1, 2, 3], [4]) == Place("c0", 0, None)


def linear(calls, prompt):
    """The definition, word for word."""
    fits = [call for call in calls if call.answered and prompt[: len(call.all_token_ids)] == call.all_token_ids]
    fits = [call for call in fits if len(call.all_token_ids) < len(prompt)]
    return max(fits, key=lambda call: len(call.all_token_ids), default=None)


@pytest.mark.parametrize("seed", range(5))
def test_the_index_finds_what_comparing_every_call_finds(talk, seed):
    draw = random.Random(seed)
    for _ in range(200):
        base = draw.choice(talk.calls).all_token_ids if talk.calls and draw.random() < 0.8 else []
        prompt = base[: draw.randint(0, len(base))] if draw.random() < 0.3 else list(base)
        prompt = prompt + [draw.randint(0, 2) for _ in range(draw.randint(1, 4))]
        expected = linear(talk.calls, prompt)
        where = talk.add(prompt, [draw.randint(0, 2) for _ in range(draw.randint(0, 2))])
        found = next((call.all_token_ids for call in talk.calls if call.intent.call_id == where.parent_call_id), None)
        assert found == (expected.all_token_ids if expected else None)


def test_placing_the_thousandth_call_of_a_long_session_takes_milliseconds(talk):
    prompt, spent = list(range(2000)), []
    for n in range(1000):
        begin = time.perf_counter()
        where = talk.begin(prompt)
        spent.append(time.perf_counter() - begin)
        talk.end(n, [n % 251] * 10)
        assert where.parent_call_id == (f"c{n - 1}" if n else None)
        prompt = prompt + [n % 251] * 10 + [9] * 10
    middle_s = sorted(spent)[500]
    assert middle_s < 0.02  # comparing every call took longer by the square of the calls
