"""Credit follows lines of conversation, never time."""

from datetime import UTC, datetime

import pytest

from lakehouse.records import Status
from sandboxes.gateway.sessions.lines import Lines
from sandboxes.gateway.sessions.recorded import Answer, Intent, Recorded

SYSTEM = {"role": "system", "content": "you solve problems"}
HELPER = {"role": "system", "content": "you look things up"}


def user(text):
    return {"role": "user", "content": text}


def said(text):
    return {"role": "assistant", "content": text}


def tree(*calls):
    """Calls c0, c1, ...: (parent's number or None, fork reason or None, messages, what was said)."""
    made = []
    for n, (parent, reason, messages, answer) in enumerate(calls):
        intent = Intent(
            call_id=f"c{n}", call_index=n, first_choice=f"c{n}", parent_call_id=None if parent is None else f"c{parent}",
            segment=0, fork_reason=reason, body_digest="", idempotency_key=None, messages=messages, tools=[],
            template_kwargs={}, sampling={}, prompt_token_ids=[hash(str(messages)) % 2**31], token_route="generate",
            template_digest="", engine_version="", started_at=datetime.now(UTC),
        )  # fmt: skip
        made.append(Recorded(intent, Answer(status=Status.OK, message=said(answer))))
    return Lines(made)


def plain(*parents):
    """Without messages: only what continues what."""
    return tree(
        *(
            (parent, None if parent is not None else "other", [user(str(n))], f"a{n}")
            for n, parent in enumerate(parents)
        )
    )


def test_a_chain_is_discounted_from_its_end():
    credit = plain(None, 0, 1).credits({"c2": 1.0}, 0.0, 0.5)
    assert credit == pytest.approx({"c2": 1.0, "c1": 0.5, "c0": 0.25})


def test_a_subagents_reward_stays_with_the_subagent():
    # c1 is a sub-agent's call, dispatched between the main agent's turns.
    assert plain(None, None, 0).credits({"c1": 5.0, "c2": 1.0}, 0.0, 1.0) == {"c0": 1.0, "c1": 5.0, "c2": 1.0}


def test_of_branches_the_deepest_gives_credit_and_of_equals_the_earlier():
    assert plain(None, 0, 0, 2).credits({"c1": 3.0, "c3": 1.0}, 0.0, 1.0)["c0"] == 1.0  # c2-c3 is deeper than c1
    assert plain(None, 0, 0).credits({"c1": 3.0, "c2": 7.0}, 0.0, 1.0)["c0"] == 3.0


def test_a_retry_gives_nothing_to_the_call_it_replaces():
    assert plain(None, None, 1).credits({"c2": 1.0}, 0.0, 1.0) == {"c0": 0.0, "c1": 1.0, "c2": 1.0}


def test_an_episodes_reward_is_discounted_from_the_end_of_the_main_line_and_added_to_calls_own():
    credit = plain(None, 0, 1).credits({"c2": 0.25, "c0": 4.0}, 1.0, 0.5)
    assert credit == pytest.approx({"c2": 1.25, "c1": 0.625, "c0": 4.3125})


def test_an_episodes_reward_passes_by_subagents_branches_and_later_asides():
    task = [SYSTEM, user("the task")]
    lines = tree(
        (None, "root", task, "one"),
        (None, "subagent", [HELPER, user("find it")], "found"),  # runs between the main agent's turns
        (0, None, [*task, said("one"), user("go on")], "two"),
        (0, "other", [*task, said("one"), user("or else")], "dead end"),  # a branch that was left
        (2, None, [*task, said("one"), user("go on"), said("two"), user("and?")], "three"),
        (1, None, [HELPER, user("find it"), said("found"), user("more")], "more"),  # dispatched last
    )
    assert [call.intent.call_id for call in lines.main_line()] == ["c0", "c2", "c4"]
    assert lines.credits({}, 1.0, 1.0) == {"c0": 1.0, "c1": 0.0, "c2": 1.0, "c3": 0.0, "c4": 1.0, "c5": 0.0}


def test_where_the_root_was_retried_the_main_line_begins_with_the_try_that_was_continued():
    task = [SYSTEM, user("the task")]
    lines = tree(
        (None, "root", task, "lost on the way"),
        (None, "retry", task, "one"),
        (1, None, [*task, said("one"), user("go on")], "two"),
    )
    assert lines.credits({}, 1.0, 1.0) == {"c0": 0.0, "c1": 1.0, "c2": 1.0}


def test_of_siblings_the_one_that_was_continued_is_on_the_main_line():
    task = [SYSTEM, user("the task")]
    lines = tree(
        (None, "root", task, "one"),
        (None, "sibling", task, "uno"),
        (None, "sibling", task, "eins"),
        (1, None, [*task, said("uno"), user("go on")], "dos"),
    )
    assert lines.credits({}, 1.0, 1.0) == {"c0": 0.0, "c1": 1.0, "c2": 0.0, "c3": 1.0}


def test_siblings_at_the_end_leave_the_reward_with_the_first():
    task = [SYSTEM, user("the task")]
    assert tree((None, "root", task, "one"), (None, "sibling", task, "uno")).credits({}, 1.0, 1.0) == {
        "c0": 1.0,
        "c1": 0.0,
    }


@pytest.mark.parametrize("reason", ["compaction", "retokenised"])
def test_credit_flows_through_a_history_that_was_rewritten(reason):
    task = [SYSTEM, user("the task")]
    lines = tree(
        (None, "root", task, "one"),
        (0, None, [*task, said("one"), user("go on")], "two"),
        (None, reason, [*task, user("in short: one"), said("two"), user("and?")], "three"),
    )
    assert lines.credits({}, 1.0, 0.5) == pytest.approx({"c0": 0.25, "c1": 0.5, "c2": 1.0})


def test_a_session_without_an_answered_call_has_no_credit():
    assert tree().credits({}, 1.0, 1.0) == {}
