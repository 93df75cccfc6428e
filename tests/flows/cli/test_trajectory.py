"""An episode as a terminal page."""

from datetime import UTC, datetime
from io import StringIO

from rich.console import Console

from flows.cli.trajectory import render
from lakehouse.records import Action, Call, Episode, Review, Status
from lakehouse.trajectory import Trajectory, Turn

AT = datetime(2026, 1, 1, tzinfo=UTC)
KEY = {"episode_id": "ep-1", "attempt_id": "at-1"}
EPISODE = Episode(
    **KEY, run_id="r", group_id="g", problem_id="p", problem_kind="search", split="train", sample_index=0,
    agent="search", backend="none", mode="policy", purpose="train", status=Status.INFRA_ERROR, error="engine gone",
    session_id="s", model_name="toy", model_version=1, n_calls=1, n_prompt_tokens=1, n_completion_tokens=0,
    duration_s=1.0, started_at=AT, ended_at=AT,
)  # fmt: skip
UNANSWERED = Call(
    **KEY, call_id="c0", session_id="s", call_index=0, parent_call_id=None, segment=0, fork_reason="root",
    prompt_token_ids=[1], completion_token_ids=[], logprobs=None, weight_versions=[], token_status="missing",
    token_route="generate", status=Status.INFRA_ERROR, finish_reason=None, request_messages="[]",
    response_message="null", tools="[]", sampling="{}", template_digest="d", engine_version="0", latency_s=0.1,
    started_at=AT,
)  # fmt: skip


def action(call_id, observation):
    return Action(
        **KEY, action_index=0, call_id=call_id, tool="search", arguments="{}", observation=observation,
        is_error=False, duration_s=0.1, started_at=AT,
    )  # fmt: skip


def page(turns, stray=(), reviews=()):
    console = Console(width=100, file=StringIO())
    console.print(render(Trajectory(EPISODE, None, turns, list(stray), [], [], list(reviews))))
    return console.file.getvalue()


def test_a_call_without_an_answer_is_shown_with_how_it_ended():
    shown = page([Turn(UNANSWERED, [])])
    assert "infra_error: engine gone" in shown
    assert "call 0, versions [], 0 tokens, infra_error" in shown


def test_tool_calls_of_no_recorded_call_are_shown_too():
    shown = page([Turn(UNANSWERED, [action("c0", "of the call")])], [action(None, "of nobody")])
    assert "of the call" in shown
    assert "tool calls of no recorded call" in shown and "of nobody" in shown


def test_what_people_said_of_it_is_shown():
    verdict = Review(
        review_id="rv-1",
        episode_id="ep-1",
        reviewer="ann",
        queue="random",
        outcome=0.0,
        comment="copied",
        reviewed_at=AT,
    )
    unsure = verdict.model_copy(update={"reviewer": "bob", "outcome": None, "comment": None})
    shown = page([], reviews=[verdict, unsure])
    assert "review ann, 2026-01-01 00:00, queue random: outcome 0: copied" in shown
    assert "review bob, 2026-01-01 00:00, queue random: cannot be told, not trained on" in shown
