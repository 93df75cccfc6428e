-- name: swe
-- version: 1
-- kinds: swe
-- grain: one row per swe episode
-- inputs: episodes, evidence "tests"
-- outcome: 1 where every FAIL_TO_PASS and PASS_TO_PASS test passes, else 0
-- reward: the outcome; short of it up to 0.2 for the share of FAIL_TO_PASS tests repaired, if nothing that passed broke
with tests as (
    select
        episode_id,
        (value ->> '$.resolved')::boolean as resolved,
        (value ->> '$.fail_to_pass.passed')::double as repaired,
        (value ->> '$.fail_to_pass.total')::double as broken,
        (value ->> '$.pass_to_pass.passed')::double as kept,
        (value ->> '$.pass_to_pass.total')::double as working
    from evidence
    where name = 'tests'
),

judged as (
    select
        episodes.episode_id,
        case
            when episodes.status not in ('ok', 'truncated', 'model_error') then 'not_trainable'
            when tests.resolved is null then 'no_evidence'
            else 'scored'
        end as status,
        tests.*
    from episodes
    left join tests using (episode_id)
    where episodes.problem_kind = 'swe'
),

partial as (
    select *, if(kept = working, 0.2 * coalesce(repaired / nullif(broken, 0), 0), 0) as partial_credit
    from judged
)

select
    episode_id,
    status,
    if(status = 'scored', if(resolved, 1.0, 0.0), null)::double as outcome,
    if(status = 'scored', if(resolved, 1.0, coalesce(partial_credit, 0)), null)::double as reward,
    if(
        status = 'scored',
        json_object('repaired', repaired, 'broken', broken, 'kept', kept, 'working', working),
        json_object()
    )::varchar as components
from partial
