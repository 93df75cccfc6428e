-- grain: one row per episode, call, rubric and rubric version: the judgement that holds
-- A rubric judges calls by an object `calls` in its components, call_id to reward; `call_rewards` has what others gave.
with rubrics as (
    select
        episode_id,
        unnest(json_keys(components -> '$.calls')) as call_id,
        rubric,
        rubric_version,
        unnest((components -> '$.calls.*')::double[]) as reward,
        null::varchar as reason,
        labelled_at
    from latest_rewards
    where json_type(components -> '$.calls') = 'OBJECT'
)

select *
from (
    from call_rewards
    union all
    from rubrics
)
qualify row_number() over (partition by episode_id, call_id, rubric, rubric_version order by labelled_at desc) = 1
