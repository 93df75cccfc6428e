-- question: What did each step of each loop train on?
-- grain: one row per loop and step; `max_staleness` in steps of training, of what was trained; tokens of what age dropped
with sets as (
    select
        *,
        (selection -> '$.asked.group_ids')::varchar[] as group_ids
    from training_sets
    where loop_id is not null
),

ages as (
    select training_set_id, max(staleness) as max_staleness
    from staleness
    group by training_set_id
),

versions as (
    select training_set_id, min(version) as version
    from model_versions
    group by training_set_id
)

select
    sets.loop_id,
    sets.loop_step + 1 as step,
    sets.training_set_id,
    len(sets.group_ids) as groups_consumed,
    sets.n_rows as rows,
    sets.n_episodes as episodes,
    sets.n_trained_tokens as trained_tokens,
    coalesce((sets.ledger ->> '$.dropped.stale')::bigint, 0) as stale_tokens,
    ages.max_staleness,
    sets.policy_version,
    versions.version,
    sets.created_at
from sets
left join ages using (training_set_id)
left join versions using (training_set_id)
order by sets.created_at desc
