"""Which rows an export has."""

from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from lakehouse.records import Status
from sandboxes.gateway.http.rl import Export
from sandboxes.gateway.sessions.export import trajectories
from sandboxes.gateway.sessions.recorded import Answer, Intent, Recorded
from sandboxes.gateway.sessions.schema import SessionRow
from sandboxes.gateway.sessions.sessions import Session

ROW = SessionRow(
    n=1, session_id="s-1", task_id="s", mode="policy", engine_version="", template_digest="",
    started_at=datetime.now(UTC).isoformat(),
)  # fmt: skip


def session(parents, prompts):
    """A session of answered calls c0, c1, ... with the given parents' numbers and prompts."""
    made = Session(ROW, "ended", None, None)
    for n, parent in enumerate(parents):
        intent = Intent(
            call_id=f"c{n}", call_index=n, first_choice=f"c{n}", parent_call_id=None if parent is None else f"c{parent}",
            segment=0, fork_reason=None, body_digest="", idempotency_key=None, messages=[], tools=[], template_kwargs={},
            sampling={}, prompt_token_ids=prompts[n], token_route="generate", template_digest="", engine_version="",
            started_at=datetime.now(UTC),
        )  # fmt: skip
        made.calls.append(Recorded(intent, Answer(status=Status.OK, message={"role": "assistant", "content": ""})))
    return made


def kept(made, *, drop):
    return list(trajectories(made, discount=1.0, style="individual", drop_retry_orphans=drop))


def test_retry_orphans_can_be_dropped():
    made = session([None, None, 1], [[7], [7], [8]])
    assert kept(made, drop=False) == ["c0", "c1", "c2"]
    assert kept(made, drop=True) == ["c1", "c2"]


def test_of_retries_that_nothing_continues_the_last_is_kept():
    assert kept(session([None, 0, 0, 0], [[7], [8], [8], [8]]), drop=True) == ["c0", "c3"]


def test_an_early_try_that_was_continued_is_no_orphan_and_the_later_one_is():
    assert kept(session([None, None, 0], [[7], [7], [8]]), drop=True) == ["c0", "c2"]


@pytest.mark.parametrize("discount", [-0.1, 1.1, 1e308])
def test_a_discount_beyond_1_by_which_credit_would_grow_without_bound_is_refused(discount):
    with pytest.raises(ValidationError, match="discount"):
        Export(session_id="s-1", discount=discount)
