-- name: external
-- version: 1
-- kinds: external
-- unjudged: 1, applications need not reward every session
-- grain: one row per episode of an application outside
-- inputs: episodes, evidence "rewards"
-- outcome: 1 where the reward is at least 1, else 0
-- reward: as the application gave it: the newest for the whole plus the newest of each call
with given as (
    select
        episode_id,
        unnest(from_json(value -> '$.rows', '[{"call": "VARCHAR", "reward": "DOUBLE", "labeller": "VARCHAR"}]')) as given,
        unnest(range(json_array_length(value -> '$.rows')::bigint)) as position
    from evidence
    where name = 'rewards'
),

newest as (
    select episode_id, given
    from given
    qualify row_number() over (partition by episode_id, given.call order by position desc) = 1
),

totals as (
    select
        episode_id,
        sum(given.reward) as total,
        max(given.reward) filter (where given.call is null) as whole,
        count(given.call) as calls,
        string_agg(distinct given.labeller, ', ' order by given.labeller) as labellers
    from newest
    group by episode_id
),

judged as (
    select
        episodes.episode_id,
        case
            when episodes.status not in ('ok', 'truncated', 'model_error') then 'not_trainable'
            when totals.total is null then 'no_evidence'
            else 'scored'
        end as status,
        totals.* exclude (episode_id)
    from episodes
    left join totals using (episode_id)
    where episodes.problem_kind = 'external'
)

select
    episode_id,
    status,
    if(status = 'scored', if(total >= 1, 1.0, 0.0), null)::double as outcome,
    if(status = 'scored', total, null)::double as reward,
    if(
        status = 'scored',
        json_object('whole', whole, 'rewarded_calls', calls, 'labellers', labellers),
        json_object()
    )::varchar as components
from judged
