-- question: How old were the tokens that were trained on?
-- grain: one row per training set and staleness, in steps of training
select
    staleness.training_set_id,
    training_sets.objective,
    training_sets.created_at,
    staleness.staleness,
    staleness.episodes,
    staleness.tokens,
    staleness.tokens / sum(staleness.tokens) over (partition by staleness.training_set_id) as share
from staleness
inner join training_sets using (training_set_id)
order by created_at desc, staleness.staleness
