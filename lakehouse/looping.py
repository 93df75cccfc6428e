"""What there is of a loop: its groups, its steps, what is left to play. Asked of the lake and never of a process's memory.

A loop's dispatches and training sets bear its `loop_id`. A training set names the groups it was selected over, trained and
dropped alike: these are consumed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lakehouse.query import connect
from lakehouse.records import Dispatch, ModelVersion
from lakehouse.selection.filters import set_variables


@dataclass(frozen=True)
class GroupRow:
    """A group whose samples have all landed or been refused, as the selection sees them."""

    group_id: str
    problem_id: str
    samples: int  # that were dispatched
    scored: list[list[int]]  # of each sample that may be trained on: its tokens' weight versions
    spread: float  # the highest outcome of these less the lowest
    failures: list[str]  # of each other sample: its status, or why it may not be trained on


@dataclass(frozen=True)
class StepRow:
    """A training set of a loop, and how far it went."""

    number: int  # from 0 on
    training_set_id: str
    rows: int  # 0: nothing to train on
    policy_version: int  # that training starts from
    group_ids: list[str]
    version: int | None  # that was registered from it
    deployed: bool  # with proof
    promoted: bool  # at some time

    @property
    def finished(self) -> bool:
        """Whether nothing of it is left to do: it went into service, or there was nothing to train on."""
        return self.rows == 0 or (self.deployed and self.promoted)


_GROUPS = """
    with asked as (
        select episode_id, group_id, problem_id
        from dispatches
        where loop_id = $loop_id and ($group_ids is null or list_contains($group_ids, group_id))
    ),

    refused as (
        select distinct episode_id
        from bronze.quarantine
        where table_name = 'episodes'
    ),

    ended as (
        select
            asked.*,
            eligible.episode_id is not null or refused.episode_id is not null as over,
            eligible.episode_id is not null and eligible.reason is null as scored,
            case
                when eligible.episode_id is null then 'quarantined'
                when eligible.reason = 'not_trainable' then eligible.status
                else eligible.reason
            end as failure,
            eligible.versions,
            eligible.outcome,
            eligible.ended_at
        from asked
        left join filters.eligible as eligible using (episode_id)
        left join refused using (episode_id)
    )

    select
        group_id,
        any_value(problem_id) as problem_id,
        count(*) as samples,
        coalesce(list(versions) filter (scored), []) as scored,
        coalesce(max(outcome) filter (scored) - min(outcome) filter (scored), 0.0) as spread,
        coalesce(list(failure) filter (not scored), []) as failures
    from ended
    group by group_id
    having bool_and(over)
    order by max(ended_at), group_id
"""


def settled(
    lake: str | None, loop_id: str, *, model_name: str, rubrics: Sequence[str], group_ids: Sequence[str] | None = None
) -> list[GroupRow]:
    """The loop's groups that have settled, in the order in which they did; of these groups, or of all.

    What landed must have been judged by the rubrics, see `unjudged_runs`.
    """
    with connect(lake) as connection:
        runs = [run for (run,) in connection.execute(_RUNS, [loop_id]).fetchall()]
        variables = {"run_ids": runs, "group_ids": group_ids, "model_name": model_name, "rubrics": list(rubrics)}
        set_variables(connection, variables)
        rows = connection.execute(_GROUPS, {"loop_id": loop_id, "group_ids": group_ids}).pl()
    return [GroupRow(**row) for row in rows.to_dicts()]


_RUNS = "select distinct run_id from dispatches where loop_id = $1 order by run_id"


def runs(lake: str | None, loop_id: str) -> list[str]:
    """The run ids of a loop."""
    with connect(lake) as connection:
        return [run for (run,) in connection.execute(_RUNS, [loop_id]).fetchall()]


def left(lake: str | None, loop_id: str) -> list[Dispatch]:
    """Dispatches of a loop whose episode has neither landed nor been refused, a group's one after another, the oldest first."""
    with connect(lake) as connection:
        rows = connection.execute(
            "from unplayed where loop_id = $1 order by created_at, group_id, sample_index", [loop_id]
        ).pl()
    return [Dispatch(**row) for row in rows.to_dicts()]


def dispatched(lake: str | None, run_id: str) -> set[str]:
    """The problems of a run."""
    with connect(lake) as connection:
        rows = connection.execute("select distinct problem_id from dispatches where run_id = $1", [run_id]).fetchall()
    return {problem for (problem,) in rows}


def steps(lake: str | None, loop_id: str, *, model_name: str) -> list[StepRow]:
    """The steps of a loop that have a training set, by number."""
    with connect(lake) as connection:
        rows = connection.execute(
            """
            with versions as (
                select training_set_id, min(version) as version
                from model_versions
                where name = $model_name
                group by training_set_id
            ),

            accepted as (
                select distinct version, true as deployed
                from deployments
                where name = $model_name and accepted
            ),

            moved as (
                select distinct split_part(object, '@', 1) || '@' || (detail ->> '$.to') as object
                from audit
                where action = 'move alias'
            )

            select
                loop_step as number,
                training_sets.training_set_id,
                n_rows as rows,
                policy_version,
                (selection -> '$.asked.group_ids')::varchar[] as group_ids,
                version,
                coalesce(deployed, false) as deployed,
                moved.object is not null as promoted
            from training_sets
            left join versions using (training_set_id)
            left join accepted using (version)
            left join moved on moved.object = $model_name || '@' || version
            where loop_id = $loop_id
            order by loop_step
            """,
            {"loop_id": loop_id, "model_name": model_name},
        ).pl()
    return [StepRow(**row) for row in rows.to_dicts()]


def lineage(lake: str | None, model_name: str, version: int) -> frozenset[int]:
    """The version and all it was trained from."""
    with connect(lake) as connection:
        rows = connection.execute(
            "select ancestor from ancestry where name = $1 and version = $2", [model_name, version]
        ).fetchall()
    return frozenset(ancestor for (ancestor,) in rows) | {version}


def overruled(lake: str | None, model_name: str, version: int) -> bool:
    """Whether `champion` was moved after the training of this version began: then whoever moved it decided against the line that
    a loop is on. A gate that promotes does so before the next step's training set is made.

    By the audit, in which moves by MLflow's own UI must have been noted.
    """
    with connect(lake) as connection:
        found = connection.execute(
            """
            select max(audit.noted_at) > any_value(begun.at)
            from audit
            cross join (
                select min(coalesce(training_sets.created_at, model_versions.created_at)) as at
                from model_versions
                left join training_sets using (training_set_id)
                where name = $name and version = $version
            ) as begun
            where action = 'move alias' and object = $name || '@champion'
            """,
            {"name": model_name, "version": version},
        ).fetchone()
    return bool(found and found[0])


def made(lake: str | None, model_name: str, version: int) -> ModelVersion:
    """A registered version. LookupError where the lake does not know it."""
    with connect(lake) as connection:
        rows = connection.execute(
            "from model_versions where name = $1 and version = $2 limit 1", [model_name, version]
        ).pl()
    if rows.is_empty():
        raise LookupError(f"the lake has no version {version} of {model_name}")
    return ModelVersion(**rows.row(0, named=True))
