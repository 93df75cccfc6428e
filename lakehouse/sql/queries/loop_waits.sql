-- question: What does each loop wait for, and since when?
-- grain: one row per loop, the newest first
-- waits_for: training, deployment or promotion of its open step; else episodes, for the next batch
with last_steps as (
    select *
    from training_sets
    where loop_id is not null
    qualify row_number() over (partition by loop_id order by loop_step desc) = 1
),

versions as (
    select training_set_id, min(version) as version, min(name) as name, min(created_at) as created_at
    from model_versions
    group by training_set_id
),

deployed as (
    select name, version, min(deployed_at) as at
    from deployments
    where accepted
    group by name, version
),

moved as (
    select split_part(object, '@', 1) || '@' || (detail ->> '$.to') as object, min(noted_at) as at
    from audit
    where action = 'move alias'
    group by all
),

open_steps as (
    select
        last_steps.loop_id,
        last_steps.loop_step + 1 as step,
        last_steps.training_set_id,
        versions.version,
        case
            when last_steps.n_rows = 0 then 'episodes'
            when versions.version is null then 'training'
            when deployed.at is null then 'deployment'
            when moved.at is null then 'promotion'
            else 'episodes'
        end as waits_for,
        coalesce(moved.at, deployed.at, versions.created_at, last_steps.created_at) as since
    from last_steps
    left join versions using (training_set_id)
    left join deployed on versions.name = deployed.name and versions.version = deployed.version
    left join moved on versions.name || '@' || versions.version = moved.object
)

select
    groups.loop_id,
    coalesce(open_steps.step, 0) as step,
    coalesce(open_steps.waits_for, 'episodes') as waits_for,
    coalesce(open_steps.since, groups.begun_at) as since,
    open_steps.training_set_id,
    open_steps.version,
    groups.begun,
    groups.left_to_play as in_flight,
    groups.settled,
    groups.consumed,
    groups.waiting,
    groups.failed,
    groups.last_ended_at
from queries.loop_groups as groups
left join open_steps using (loop_id)
order by groups.begun_at desc
