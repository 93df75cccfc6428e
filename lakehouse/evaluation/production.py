"""What sessions in production earned, by the version that answered them."""

from collections.abc import Sequence
from datetime import datetime

from lakehouse.query import connect


def rewards(lake: str | None, name: str, versions: Sequence[int], since: datetime) -> dict[int, list[float]]:
    """Of each version the rewards of applications' sessions that began since then, in the order in which they ended.

    The judgement that holds, by the newest version of the problem's own rubric. A session without a reward, or one that an
    engine or a gateway lost, says nothing of the version and is left out.
    """
    with connect(lake) as connection:
        rows = connection.execute(
            """
            select episodes.model_version, newest.reward
            from episodes
            inner join newest_judgements as newest
                on episodes.episode_id = newest.episode_id and episodes.problem_kind = newest.rubric
            where episodes.model_name = $name
                and list_contains($versions, episodes.model_version)
                and episodes.purpose = 'external'
                and episodes.started_at >= $since
                and newest.reward is not null
            order by episodes.ended_at, episodes.episode_id
            """,
            {"name": name, "versions": list(versions), "since": since},
        ).fetchall()
    found: dict[int, list[float]] = {version: [] for version in versions}
    for version, reward in rows:
        found[int(version)].append(float(reward))
    return found


def fates(lake: str | None, name: str, versions: Sequence[int], since: datetime) -> dict[int, dict[str, int]]:
    """Of each version how those sessions ended, by status."""
    with connect(lake) as connection:
        rows = connection.execute(
            """
            select model_version, status, count(*)
            from episodes
            where model_name = $name
                and list_contains($versions, model_version)
                and purpose = 'external'
                and started_at >= $since
            group by all
            order by all
            """,
            {"name": name, "versions": list(versions), "since": since},
        ).fetchall()
    found: dict[int, dict[str, int]] = {version: {} for version in versions}
    for version, status, count in rows:
        found[int(version)][str(status)] = int(count)
    return found
