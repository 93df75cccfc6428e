-- grain: one row per training set, run, model version that sampled, fate and reason: what became of every sampled token
-- fate is sampled, trained, masked or dropped; of a set made by an earlier release the run is NULL
with parts as (
    select
        training_set_id,
        created_at,
        unnest(
            if(
                json_array_length(ledger -> '$.parts') > 0,
                (ledger -> '$.parts')::json[],
                [ledger::json]
            )
        ) as part
    from training_sets
),

counted as (
    select
        *,
        unnest(['sampled', 'trained']) as fate,
        null::varchar as reason,
        unnest([(part ->> '$.sampled')::bigint, (part ->> '$.trained')::bigint]) as tokens
    from parts

    union all

    select
        *,
        'masked' as fate,
        unnest(json_keys(part -> '$.masked')) as reason,
        unnest((part -> '$.masked.*')::bigint[]) as tokens
    from parts

    union all

    select
        *,
        'dropped' as fate,
        unnest(json_keys(part -> '$.dropped')) as reason,
        unnest((part -> '$.dropped.*')::bigint[]) as tokens
    from parts
)

select
    training_set_id,
    part ->> '$.run_id' as run_id,
    part ->> '$.model_name' as model_name,
    (part ->> '$.model_version')::bigint as model_version,
    fate,
    reason,
    tokens,
    created_at
from counted
