-- question: How far is each loop?
-- grain: one row per loop; groups that were begun: settled (every sample landed or was refused), consumed by a step, waiting for one
with refused as (
    select distinct episode_id
    from quarantine
    where table_name = 'episodes'
),

groups as (
    select
        dispatches.loop_id,
        dispatches.group_id,
        min(dispatches.created_at) as begun_at,
        max(episodes.ended_at) as ended_at,
        bool_and(episodes.episode_id is not null or refused.episode_id is not null) as settled,
        count_if(episodes.status in ('ok', 'truncated', 'model_error')) as sound
    from dispatches
    left join episodes using (episode_id)
    left join refused using (episode_id)
    where dispatches.loop_id is not null
    group by dispatches.loop_id, dispatches.group_id
),

consumed as (
    select loop_id, unnest((selection -> '$.asked.group_ids')::varchar[]) as group_id
    from training_sets
    where loop_id is not null
),

steps as (
    select loop_id, count(*) as steps
    from training_sets
    where loop_id is not null
    group by loop_id
)

select
    groups.loop_id,
    any_value(coalesce(steps.steps, 0)) as steps,
    count(*) as begun,
    count_if(groups.settled) as settled,
    count(consumed.group_id) as consumed,
    count_if(groups.settled and consumed.group_id is null and groups.sound >= 2) as waiting,
    count_if(groups.settled and groups.sound < 2) as failed,
    count_if(not groups.settled) as left_to_play,
    min(groups.begun_at) as begun_at,
    max(groups.ended_at) as last_ended_at
from groups
left join consumed using (loop_id, group_id)
left join steps using (loop_id)
group by groups.loop_id
order by last_ended_at desc nulls first
