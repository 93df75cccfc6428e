"""What waits: groups for somebody to train on them, and loops for what they need next."""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel

from lakehouse.query import connect
from lakehouse.query.named import run_named

ENOUGH = 16  # groups that are worth a step


def waiting(lake: str | None, model_name: str, *, max_staleness: int = 1) -> dict[str, int]:
    """Groups that were sampled lately, judged, and differ in outcome, by run id, the oldest first, of runs that no training
    set has seen. Runs of loops are left out: a loop trains on its own.

    A run counts as seen once a training set was selected over it, whatever that left out. Lately: by the version that was deployed
    last or one that this was trained from, at most `max_staleness` steps before.
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
                and (
                    (select version from deployed) is null
                    or exists (
                        from ancestry
                        where name = $model_name
                            and version = (select version from deployed)
                            and ancestor = episodes.model_version
                            and distance <= $max_staleness
                    )
                )
            group by episodes.run_id
            order by min(episodes.started_at)
            """,
            {"model_name": model_name, "max_staleness": max_staleness},
        ).fetchall()
    return dict(rows)


class Loop(BaseModel):
    """A loop as the lake has it, whether its process lives or not. Groups are counted."""

    loop_id: str
    step: int  # that was begun last, from 1 on; 0: none
    waits_for: Literal["episodes", "training", "deployment", "promotion"]
    since: datetime
    training_set_id: str | None  # of that step
    version: int | None
    begun: int
    in_flight: int  # or broken off
    settled: int
    consumed: int  # by a step
    waiting: int  # for one
    failed: int
    last_ended_at: datetime | None  # an episode


def loops(lake: str | None, *, shown: int = 3) -> list[Loop]:
    """The newest loops and what each waits for: the named query `loop_waits`."""
    with connect(lake) as connection:
        rows = run_named(connection, "loop_waits")
    return [Loop(**row) for row in rows.head(shown).to_dicts()]
