"""Credit follows the tree, never time."""

from datetime import UTC, datetime

import pytest

from lakehouse.records import Status
from sandboxes.gateway.export import credits, trajectories
from sandboxes.gateway.journal import SessionRow
from sandboxes.gateway.recorded import Answer, Intent, Recorded
from sandboxes.gateway.sessions import Session


def tree(parents, prompts=None):
    """Calls c0, c1, ... with the given parents' numbers."""
    calls = []
    for n, parent in enumerate(parents):
        intent = Intent(
            call_id=f"c{n}", call_index=n, parent_call_id=None if parent is None else f"c{parent}", segment=0,
            fork_reason=None, body_digest="", idempotency_key=None, messages=[], tools=[], template_kwargs={}, sampling={},
            prompt_token_ids=[prompts[n] if prompts else n], token_route="generate", template_digest="", engine_version="",
            started_at=datetime.now(UTC),
        )  # fmt: skip
        calls.append(Recorded(intent, Answer(status=Status.OK, message={"role": "assistant", "content": ""})))
    return calls


def test_a_chain_is_discounted_from_its_end():
    assert credits(tree([None, 0, 1]), {"c2": 1.0}, 0.5) == pytest.approx({"c2": 1.0, "c1": 0.5, "c0": 0.25})


def test_a_subagents_reward_stays_with_the_subagent():
    # c1 is a sub-agent's call, dispatched between the main agent's turns.
    assert credits(tree([None, None, 0]), {"c1": 5.0, "c2": 1.0}, 1.0) == {"c0": 1.0, "c1": 5.0, "c2": 1.0}


def test_of_branches_the_deepest_gives_credit_and_of_equals_the_earlier():
    rewards = {"c1": 3.0, "c3": 1.0}
    assert credits(tree([None, 0, 0, 2]), rewards, 1.0)["c0"] == 1.0  # c2-c3 is deeper than c1
    assert credits(tree([None, 0, 0]), {"c1": 3.0, "c2": 7.0}, 1.0)["c0"] == 3.0


def test_a_retry_gives_nothing_to_the_call_it_replaces():
    assert credits(tree([None, None, 1]), {"c2": 1.0}, 1.0) == {"c0": 0.0, "c1": 1.0, "c2": 1.0}


def test_retry_orphans_can_be_dropped():
    row = SessionRow(1, "s-1", "s", "policy", "", "", "ended", None, None, "", "")
    session = Session(row, "ended", None, None, calls=tree([None, None, 1], prompts=[7, 7, 8]))
    wanted = {"discount": 1.0, "style": "individual"}
    assert list(trajectories(session, drop_retry_orphans=False, **wanted)) == ["c0", "c1", "c2"]
    assert list(trajectories(session, drop_retry_orphans=True, **wanted)) == ["c1", "c2"]
