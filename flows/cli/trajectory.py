"""A trajectory as a terminal page."""

import json
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from lakehouse.records import Action, Review, Reward
from lakehouse.trajectory import Trajectory, Turn


def render(found: Trajectory) -> RenderableType:
    """Statement, turns with their tool calls, evidence, rewards and people's verdicts."""
    episode = found.episode
    head = Table.grid(padding=(0, 2))
    for name, value in (
        ("problem", episode.problem_id),
        ("status", f"{episode.status}{': ' + episode.error if episode.error else ''}"),
        ("agent", f"{episode.agent} ({episode.mode}) in {episode.backend}"),
        (
            "model",
            f"{episode.model_name} version {episode.model_version if episode.model_version is not None else '-'}",
        ),
        ("run", f"{episode.run_id}, {episode.purpose}, sample {episode.sample_index}"),
        ("size", f"{episode.n_calls} calls, {episode.n_completion_tokens} sampled tokens, {episode.duration_s:.1f} s"),
    ):
        head.add_row(Text(name, style="dim"), Text(str(value)))
    parts: list[RenderableType] = [Panel(head, title=episode.episode_id)]
    if found.problem:
        parts.append(Panel(Text(found.problem.prompt), title="problem"))
    parts += [_turn(turn) for turn in found.turns]
    if found.stray_actions:
        parts.append(
            Panel(Group(*_acted(found.stray_actions)), title="tool calls of no recorded call", title_align="left")
        )
    parts += [Text.assemble(("evidence ", "dim"), f"{e.name}: {e.value}") for e in found.evidence]
    parts += [_reward(reward) for reward in found.rewards]
    parts += [_review(review) for review in found.reviews]
    return Group(*parts)


def _turn(turn: Turn) -> RenderableType:
    call = turn.call
    message = json.loads(call.response_message) or {}  # null: the call ended without an answer
    lines: list[RenderableType] = []
    if message.get("content"):
        lines.append(Text(message["content"]))
    lines += _acted(turn.actions)
    about = f"call {call.call_index}, versions {turn.versions}, {len(call.completion_token_ids)} tokens"
    if call.logprobs:
        about += f", mean log-prob {sum(call.logprobs) / len(call.logprobs):.2f}"
    if call.status != "ok":
        about += f", {call.status}"
    return Panel(Group(*lines), title=about, title_align="left", border_style="dim")


def _acted(actions: Sequence[Action]) -> list[RenderableType]:
    """Tool calls, each with what came back."""
    lines: list[RenderableType] = []
    for action in actions:
        lines.append(Text.assemble((f"{action.tool} ", "bold cyan"), action.arguments))
        lines.append(Text(action.observation, style="red" if action.is_error else "green"))
    return lines


def _reward(reward: Reward) -> Text:
    value = "NULL" if reward.reward is None else f"{reward.reward:g}"
    return Text.assemble(
        ("reward ", "dim"), f"{reward.rubric}@{reward.rubric_version}: {value} ({reward.status}) {reward.components}"
    )


def _review(review: Review) -> Text:
    said = "cannot be told, not trained on" if review.outcome is None else f"outcome {review.outcome:g}"
    why = f": {review.comment}" if review.comment else ""
    return Text.assemble(
        ("review ", "dim"), f"{review.reviewer}, {review.reviewed_at:%Y-%m-%d %H:%M}, queue {review.queue}: {said}{why}"
    )
