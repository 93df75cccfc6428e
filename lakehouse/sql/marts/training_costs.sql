-- grain: one row per training set: what its trained tokens took to sample, dropped and masked ones included
-- variables: price_per_hour (of the machines that played the episodes; NULL = no cost)
-- `wall_seconds` adds up, run by run, the time between the first episode's start and the last one's end; `episode_seconds` the
-- durations of the episodes, of which many ran side by side.
with parts as (
    select training_set_id, n_trained_tokens, unnest((ledger -> '$.parts')::json[]) as part
    from training_sets
),

runs as (
    select run_id, epoch(max(ended_at) - min(started_at)) as wall_seconds
    from episodes
    group by run_id
),

walls as (
    select training_set_id, sum(wall_seconds) as wall_seconds
    from (select distinct training_set_id, part ->> '$.run_id' as run_id from parts)
    inner join runs using (run_id)
    group by training_set_id
),

sums as (
    select
        training_set_id,
        any_value(n_trained_tokens) as trained_tokens,
        sum((part ->> '$.episodes')::bigint)::bigint as episodes,
        sum((part ->> '$.prompt_tokens')::bigint)::bigint as prompt_tokens,
        sum((part ->> '$.sampled')::bigint)::bigint as sampled_tokens,
        sum((part ->> '$.episode_seconds')::double) as episode_seconds
    from parts
    group by training_set_id
)

select
    sums.*,
    walls.wall_seconds,
    episode_seconds / trained_tokens as seconds_per_trained_token,
    prompt_tokens / trained_tokens as prompt_per_trained_token,
    sampled_tokens / trained_tokens as sampled_per_trained_token,
    walls.wall_seconds / 3600 * getvariable('price_per_hour')::double as cost,
    walls.wall_seconds / 3600 * getvariable('price_per_hour')::double / trained_tokens * 1e6 as cost_per_million_trained_tokens
from sums
left join walls using (training_set_id)
