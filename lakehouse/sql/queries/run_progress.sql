-- question: How far is each run?
-- grain: one row per run: dispatched, landed, scored, left
with judged as (
    select distinct episode_id
    from latest_rewards
    where status = 'scored'
)

select
    dispatches.run_id,
    any_value(dispatches.purpose) as purpose,
    min(dispatches.created_at) as dispatched_at,
    count(*) as dispatched,
    count(episodes.episode_id) as landed,
    count(judged.episode_id) as scored,
    count(*) - count(episodes.episode_id) as remaining,
    count_if(episodes.status not in ('ok', 'truncated', 'model_error')) as failed
from dispatches
left join episodes using (episode_id)
left join judged using (episode_id)
group by dispatches.run_id
order by dispatched_at desc
