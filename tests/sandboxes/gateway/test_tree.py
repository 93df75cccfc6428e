"""Placing a call among those before it."""

from datetime import UTC, datetime

from lakehouse.records import Status
from sandboxes.gateway.facts import Conversation
from sandboxes.gateway.recorded import Answer, Intent, Recorded
from sandboxes.gateway.tree import Place, place

SYSTEM, USER = {"role": "system", "content": "s"}, {"role": "user", "content": "u"}
TALK = Conversation([SYSTEM, USER])


def add(calls, prompt, completion, *, conversation=TALK, status=Status.OK, retokenised=False):
    where = place(calls, prompt, conversation, retokenised=retokenised)
    intent = Intent(
        call_id=f"c{len(calls)}", call_index=len(calls), parent_call_id=where.parent_call_id, segment=where.segment,
        fork_reason=where.fork_reason, body_digest="", idempotency_key=None, messages=list(conversation.messages),
        tools=list(conversation.tools), template_kwargs={}, sampling={}, prompt_token_ids=prompt, token_route="generate",
        template_digest="", engine_version="", started_at=datetime.now(UTC),
    )  # fmt: skip
    message = {"role": "assistant", "content": ""} if status.trainable else None
    calls.append(Recorded(intent, Answer(status=status, message=message, completion_token_ids=completion)))
    return where


def test_the_first_call_is_the_root_and_its_continuation_stays_in_its_segment():
    calls = []
    assert add(calls, [1, 2], [3]) == Place(None, 0, "root")
    assert add(calls, [1, 2, 3, 4], [5]) == Place("c0", 0, None)


def test_the_parent_is_the_longest_true_prefix():
    calls = []
    add(calls, [1], [2])
    add(calls, [1, 2, 3], [4])
    assert add(calls, [1, 2, 3, 4, 5], []).parent_call_id == "c1"


def test_equal_ids_are_no_true_prefix():
    calls = []
    add(calls, [1], [2])
    assert add(calls, [1, 2], []).parent_call_id is None


def test_a_second_child_branches_with_its_parent_kept():
    calls = []
    add(calls, [1], [2])
    add(calls, [1, 2, 3], [4])
    assert add(calls, [1, 2, 3], [9]) == Place("c0", 1, "retry")
    assert add(calls, [1, 2, 7], [9]) == Place("c0", 2, "compaction")


def test_a_call_that_failed_takes_no_place():
    calls = []
    add(calls, [1], [], status=Status.INFRA_ERROR)
    assert add(calls, [1], [2]) == Place(None, 0, "root")
    add(calls, [1, 2, 3], [4], status=Status.CANCELLED)
    assert add(calls, [1, 2, 3], [5]) == Place("c1", 0, None)


def test_reasons_tell_subagents_compactions_and_the_rest_apart():
    calls = []
    add(calls, [1], [2])
    other_system = Conversation([{"role": "system", "content": "you help"}, USER])
    other_user = Conversation([SYSTEM, {"role": "user", "content": "something else"}])
    assert add(calls, [5], [6], conversation=other_system) == Place(None, 1, "subagent")
    assert add(calls, [6], [6], conversation=TALK) == Place(None, 2, "compaction")
    assert add(calls, [7], [6], conversation=other_user) == Place(None, 3, "other")
    assert add(calls, [7, 8], [6], retokenised=True) == Place(None, 4, "retokenised")


def test_a_subagents_own_turns_chain_in_its_segment():
    calls = []
    add(calls, [1], [2])
    helper = Conversation([{"role": "system", "content": "you help"}, USER])
    add(calls, [5], [6], conversation=helper)
    assert add(calls, [5, 6, 7], [8], conversation=helper) == Place("c1", 1, None)
    assert add(calls, [1, 2, 3], [4]) == Place("c0", 0, None)
