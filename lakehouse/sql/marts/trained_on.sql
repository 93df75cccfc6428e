-- grain: one row per training set and episode whose tokens it trains
with pinned as (
    select training_set_id from training_sets
)

select
    training_set_id,
    episode_id,
    count(*) as n_rows,
    sum(list_sum(loss_mask))::bigint as trained_tokens,
    avg(advantage) as advantage,
    any_value(reward) as reward
from training_rows
semi join pinned using (training_set_id)
group by training_set_id, episode_id
