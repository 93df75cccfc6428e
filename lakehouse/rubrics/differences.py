# ruff: noqa: S608 - SQL over names of our own
"""What another rubric, version or parameter would change, computed over evidence: nothing is written, nothing is sampled."""

from lakehouse.query import Connection, connect, relation
from lakehouse.records import Record
from lakehouse.rubrics.files import asked
from lakehouse.rubrics.judging import Coverage, judge

# One row per episode that either rubric was to judge. `signal` is the advantage where the group can be trained on; where it
# cannot, the episode gives no gradient, which is a signal of 0.
_CHANGES = """
    with before as (
        select *, coalesce(if(reason is null, advantage, null), 0) as signal
        from before_statistics
    ),

    after as (
        select *, coalesce(if(reason is null, advantage, null), 0) as signal
        from after_statistics
    )

    select
        coalesce(before.episode_id, after.episode_id) as episode_id,
        coalesce(before.problem_id, after.problem_id) as problem_id,
        coalesce(before.group_id, after.group_id) as group_id,
        coalesce(before.status, 'no_row') as old_status,
        coalesce(after.status, 'no_row') as new_status,
        before.outcome as old_outcome,
        after.outcome as new_outcome,
        before.reward as old_reward,
        after.reward as new_reward,
        coalesce(before.signal, 0) as old_advantage,
        coalesce(after.signal, 0) as new_advantage,
        coalesce(before.group_reason, if(before.episode_id is null, 'no_row', 'trainable')) as old_group,
        coalesce(after.group_reason, if(after.episode_id is null, 'no_row', 'trainable')) as new_group
    from before
    full join after using (episode_id)
"""


class Change(Record):
    """How one number moves. `mean` and `largest` are over the episodes where it has a value on both sides, absolute."""

    changed: int
    up: int
    down: int
    mean: float
    largest: float


class Moved(Record):
    """So many episodes or groups went from one state to another."""

    old: str
    new: str
    count: int


class ChangedEpisode(Record):
    """What becomes of one episode. An advantage of 0 is no gradient: not scored, or a group that cannot be trained on."""

    episode_id: str
    problem_id: str
    group_id: str
    old_status: str
    new_status: str
    old_outcome: float | None
    new_outcome: float | None
    old_reward: float | None
    new_reward: float | None
    old_advantage: float
    new_advantage: float
    old_group: str
    new_group: str


class Difference(Record):
    """Two rubrics over the same episodes. Group states are trainable, zero_variance_group, singleton_group, no_row."""

    old: str
    new: str
    episodes: int
    groups: int
    old_unjudged: float  # share of trainable episodes without a reward
    new_unjudged: float
    outcome: Change
    reward: Change
    advantage: Change
    statuses: list[Moved]  # of episodes, where they differ
    group_states: list[Moved]  # of groups, where they differ
    changed: list[ChangedEpisode]  # by change of advantage, the largest first


def compare(lake: str | None, old: str, new: str, *, where: str = "true", limit: int | None = None) -> Difference:
    """What changes for whom from rubric `old` to `new`, over the evidence of the episodes that `where` names.

    Neither need have labelled anything. `limit` bounds `changed` only. UnknownRubric, RubricError, SelectionError.
    """
    before, after = asked(old), asked(new)
    with connect(lake) as connection:
        coverage = [judge(connection, before, where=where, into="before_judged")]
        coverage.append(judge(connection, after, where=where, into="after_judged"))
        for side in ("before", "after"):
            _statistics(connection, side)
        connection.execute(f"create or replace temp table changes as {_CHANGES}")
        return _difference(connection, before.title, after.title, coverage, limit)


def _statistics(connection: Connection, side: str) -> None:
    """The view group_statistics over judgements that are in no table: a CTE of the view's name stands for it."""
    connection.execute(
        f"""
        create or replace temp table {side}_statistics as
        with judgements as (
            select *, '' as rubric, 0 as rubric_version
            from {side}_judged
        )

        select *
        from (
            {relation("main.group_statistics").sql}
        )
        """
    )


def _difference(connection: Connection, old: str, new: str, coverage: list[Coverage], limit: int | None) -> Difference:
    def moved(what: str, unit: str) -> list[Moved]:
        rows = connection.execute(
            f"""
            select old_{what} as old, new_{what} as new, count(distinct {unit}) as count
            from changes
            where old_{what} <> new_{what}
            group by all
            order by count desc, old, new
            """
        ).pl()
        return [Moved(**row) for row in rows.to_dicts()]

    changed = connection.execute(
        """
        from changes
        where old_status <> new_status
            or old_outcome is distinct from new_outcome
            or old_reward is distinct from new_reward
            or abs(new_advantage - old_advantage) > 1e-9
            or old_group <> new_group
        order by abs(new_advantage - old_advantage) desc, abs(coalesce(new_reward - old_reward, 1)) desc, episode_id
        limit $1
        """,
        [limit],
    ).pl()
    total = connection.execute("select count(*), count(distinct group_id) from changes").fetchone()
    assert total is not None
    return Difference(
        old=old,
        new=new,
        episodes=total[0],
        groups=total[1],
        old_unjudged=coverage[0].unjudged,
        new_unjudged=coverage[1].unjudged,
        outcome=_change(connection, "outcome"),
        reward=_change(connection, "reward"),
        advantage=_change(connection, "advantage"),
        statuses=moved("status", "episode_id"),
        group_states=moved("group", "group_id"),
        changed=[ChangedEpisode(**row) for row in changed.to_dicts()],
    )


def _change(connection: Connection, what: str) -> Change:
    rows = connection.execute(
        f"""
        with moves as (
            select new_{what} - old_{what} as step, (new_{what} is null) <> (old_{what} is null) as appeared
            from changes
        )

        select
            count(*) filter (where abs(step) > 1e-9 or appeared) as changed,
            count(*) filter (where step > 1e-9) as up,
            count(*) filter (where step < -1e-9) as down,
            coalesce(avg(abs(step)), 0) as mean,
            coalesce(max(abs(step)), 0) as largest
        from moves
        """
    ).pl()
    return Change(**rows.to_dicts()[0])
