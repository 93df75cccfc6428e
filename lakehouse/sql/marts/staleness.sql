-- grain: one row per training set and staleness, in steps of training between sampling and the policy that was trained
-- The difference of the numbers where the line between the two is not known, as of weights that nobody registered.
with trained as (
    select
        training_set_id,
        episode_id,
        list_min(list_filter(weight_versions, lambda v: v >= 0)) as oldest_version,
        list_sum(loss_mask) as tokens
    from training_rows
)

select
    trained.training_set_id,
    coalesce(ancestry.distance, training_sets.policy_version - trained.oldest_version) as staleness,
    count(distinct trained.episode_id) as episodes,
    sum(trained.tokens)::bigint as tokens
from trained
inner join training_sets using (training_set_id)
left join ancestry
    on training_sets.selection ->> '$.asked.model_name' = ancestry.name
    and training_sets.policy_version = ancestry.version
    and trained.oldest_version = ancestry.ancestor
where trained.oldest_version is not null
group by all
order by all
