-- grain: one row per training set whose ledger does not close: there must be none
-- sampled = trained + masked(reason) + dropped(reason), and the rows hold as many trained tokens as the ledger says;
-- of a set that an erasure took rows of, the rows hold fewer; a loop's batch of which nothing could be trained on has none
with ledgers as (
    select
        training_set_id,
        n_trained_tokens,
        (ledger ->> '$.sampled')::bigint as sampled,
        (ledger ->> '$.trained')::bigint as trained,
        coalesce(list_sum((ledger -> '$.masked.*')::bigint[]), 0) as masked,
        coalesce(list_sum((ledger -> '$.dropped.*')::bigint[]), 0) as dropped
    from training_sets
),

in_rows as (
    select training_set_id, sum(list_sum(loss_mask))::bigint as tokens
    from training_rows
    group by training_set_id
),

erased as (
    select distinct unnest(training_sets) as training_set_id
    from erasures
)

select ledgers.*, in_rows.tokens as in_rows, sampled - trained - masked - dropped as gap
from ledgers
left join in_rows using (training_set_id)
left join erased using (training_set_id)
where
    sampled - trained - masked - dropped <> 0
    or (erased.training_set_id is null and trained <> coalesce(in_rows.tokens, 0))
    or trained <> n_trained_tokens
