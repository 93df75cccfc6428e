"""How well a run did, from its labelled episodes."""

from lakehouse.query import connect
from lakehouse.records import Record


class Success(Record):
    """One kind of problem in one run. `n` counts scored episodes; those without a reward say nothing about the policy."""

    problem_kind: str
    n: int
    solved: int
    unscored: int
    reward: float | None  # mean over scored episodes

    @property
    def rate(self) -> float | None:
        """Share solved; None where nothing was scored, which is not the same as 0."""
        return self.solved / self.n if self.n else None


def success(lake: str | None, run_id: str) -> list[Success]:
    """Success per kind of problem, over the judgement that holds, of the newest rubric version, of each episode of the run."""
    with connect(lake) as connection:
        rows = connection.execute(
            """
            select
                episodes.problem_kind,
                count(rewards.outcome) as n,
                coalesce(sum(rewards.outcome), 0)::bigint as solved,
                count(*) - count(rewards.outcome) as unscored,
                avg(rewards.reward) as reward
            from episodes
            left join newest_judgements as rewards
                on episodes.episode_id = rewards.episode_id and episodes.problem_kind = rewards.rubric
            where episodes.run_id = $1
            group by episodes.problem_kind
            order by episodes.problem_kind
            """,
            [run_id],
        ).pl()
    return [Success(**row) for row in rows.to_dicts()]


def deployed(lake: str | None) -> set[tuple[str, int]]:
    """Name and version of what each engine serves, by the deployment that it took last."""
    with connect(lake) as connection:
        rows = connection.execute(
            "select distinct name, max_by(version, deployed_at) from deployments where accepted group by name, engine_url"
        ).fetchall()
    return {(name, version) for name, version in rows}
