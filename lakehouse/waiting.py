"""What waits to be trained on: groups that were sampled lately, judged, differ in outcome, and that no training set has seen."""

from lakehouse.query import connect

ENOUGH = 16  # groups that are worth a step


def waiting(lake: str | None, model_name: str, *, max_staleness: int = 1) -> dict[str, int]:
    """Groups by run id, the oldest run first. Runs of loops are left out: a loop trains on its own.

    A run counts as seen once a training set was selected over it, whatever that left out. Lately: at most `max_staleness`
    versions before the one that was deployed last.
    """
    with connect(lake) as connection:
        rows = connection.execute(
            """
            with deployed as (
                select max_by(version, deployed_at) as version
                from deployments
                where name = $model_name and accepted
            ),

            judged as (
                select *
                from group_statistics
                where group_reason is null and status = 'scored'
                qualify rubric_version = max(rubric_version) over (partition by episode_id, rubric)
            )

            select episodes.run_id, count(distinct episodes.group_id) as groups
            from judged
            inner join episodes using (episode_id)
            anti join (from token_ledger where run_id is not null) as seen on episodes.run_id = seen.run_id
            anti join (from dispatches where loop_id is not null) as looped on episodes.run_id = looped.run_id
            where episodes.purpose not like 'eval%'
                and episodes.mode = 'policy'
                and episodes.split = 'train'
                and episodes.model_name = $model_name
                and episodes.model_version >= (select coalesce(version, 0) - $max_staleness from deployed)
            group by episodes.run_id
            order by min(episodes.started_at)
            """,
            {"model_name": model_name, "max_staleness": max_staleness},
        ).fetchall()
    return {run: groups for run, groups in rows}
