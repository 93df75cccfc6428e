-- question: What became of every sampled token?
-- grain: one row per training set and fate: trained, masked by reason, dropped by reason
-- variables: training_set (an id; all)
with ledgers as (
    select training_set_id, objective, created_at, ledger
    from training_sets
    where training_set_id = coalesce(getvariable('training_set'), training_set_id)
),

fates as (
    select training_set_id, objective, created_at, 'trained' as fate, null as reason, (ledger ->> '$.trained')::bigint as tokens
    from ledgers

    union all

    select training_set_id, objective, created_at, 'masked', key, (ledger -> '$.masked' ->> key)::bigint
    from (select *, unnest(json_keys(ledger, '$.masked')) as key from ledgers)

    union all

    select training_set_id, objective, created_at, 'dropped', key, (ledger -> '$.dropped' ->> key)::bigint
    from (select *, unnest(json_keys(ledger, '$.dropped')) as key from ledgers)
)

select *, tokens / nullif(sum(tokens) over (partition by training_set_id), 0) as share
from fates
order by created_at desc, training_set_id, tokens desc
