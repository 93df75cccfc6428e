"""One episode as people read it: turns, tool calls, rewards, versions."""

from dataclasses import dataclass, field
from typing import Any

from lakehouse.query import Connection, connect
from lakehouse.records import Action, Call, Episode, Evidence, Problem, Review, Reward


class UnknownEpisode(LookupError):
    """No episode of this id has landed."""


@dataclass(frozen=True)
class Turn:
    """A model call and the tool calls that followed from it."""

    call: Call
    actions: list[Action]

    @property
    def versions(self) -> list[int]:
        """The weight versions that sampled it, in order of appearance; -1 for a demonstration."""
        return list(dict.fromkeys(self.call.weight_versions))


@dataclass(frozen=True)
class Trajectory:
    """An episode and all that is known of it. `rewards` are the judgements that hold, one per rubric version."""

    episode: Episode
    problem: Problem | None  # the edition that the episode saw
    turns: list[Turn]
    stray_actions: list[Action]  # tool calls that name no recorded call
    evidence: list[Evidence]
    rewards: list[Reward]
    reviews: list[Review] = field(default_factory=list)  # each reviewer's verdict that holds, the newest last


def trajectory(lake: str | None, episode_id: str) -> Trajectory:
    """The trajectory of a landed episode. UnknownEpisode if there is none."""
    with connect(lake) as connection:
        found = _rows(connection, "episodes", "episode_id", episode_id)
        if not found:
            raise UnknownEpisode(
                f"no episode {episode_id!r} has landed; `lakeloop query 'from episodes'` lists those that have"
            )
        episode = Episode(**found[0])
        editions = _rows(connection, "problem_editions", "problem_id", episode.problem_id)
        problems = [one for one in editions if one["edition"] == episode.problem_edition]
        calls = [Call(**row) for row in _rows(connection, "calls", "episode_id", episode_id, order="call_index")]
        actions = [
            Action(**row) for row in _rows(connection, "actions", "episode_id", episode_id, order="action_index")
        ]
        evidence = _rows(connection, "evidence", "episode_id", episode_id, order="name")
        rewards = _rows(connection, "latest_rewards", "episode_id", episode_id, order="rubric, rubric_version")
        reviews = _rows(connection, "latest_reviews", "episode_id", episode_id, order="reviewed_at")
    known = {call.call_id for call in calls}
    return Trajectory(
        episode=episode,
        problem=Problem(**problems[0]) if problems else None,
        turns=[Turn(call, [a for a in actions if a.call_id == call.call_id]) for call in calls],
        stray_actions=[a for a in actions if a.call_id not in known],
        evidence=[Evidence(**row) for row in evidence],
        rewards=[Reward(**row) for row in rewards],
        reviews=[Review(**row) for row in reviews],
    )


def _rows(connection: Connection, table: str, key: str, value: str, *, order: str = "1") -> list[dict[str, Any]]:
    sql = f"from {table} where {key} = $1 order by {order}"
    return connection.execute(sql, [value]).pl().to_dicts()
