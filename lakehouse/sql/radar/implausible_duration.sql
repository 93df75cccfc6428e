-- name: implausible_duration
-- sees: tests that took no time at all, or never ended; tool calls that took longer than their episode; solved without acting
-- weight: 1 where tests passed in no time; 0.5 for the others; 0.2 for tests that never ended
-- grain: one row per episode with such a duration
-- inputs: episodes, evidence "tests" and "outcomes", actions, latest_rewards
with tests as (
    select
        episode_id,
        coalesce((value ->> '$.timed_out')::boolean, false) as timed_out,
        coalesce((value ->> '$.resolved')::boolean, false) as resolved
    from evidence
    where name = 'tests'
),

marked as (
    select
        episode_id,
        list_sum((value -> '$.ms')::double[]) as ms,
        len(replace(replace(value ->> '$.marks', '-', ''), 'S', '')) as ran
    from evidence
    where name = 'outcomes'
),

acted as (
    select episode_id, count(*) as actions, sum(duration_s) as seconds
    from actions
    group by episode_id
),

solved as (
    select distinct episode_id
    from latest_rewards
    where outcome >= 1
),

found as (
    select
        episodes.episode_id,
        case
            when marked.ran >= 3 and marked.ms <= 0 then 1.0
            when acted.seconds > episodes.duration_s * 1.05 + 1 then 0.5
            when solved.episode_id is not null and episodes.n_calls = 0 and acted.actions is null and episodes.mode = 'policy' then 0.5
            when tests.timed_out then 0.2
        end as weight,
        case
            when marked.ran >= 3 and marked.ms <= 0 then marked.ran || ' tests in 0 ms'
            when acted.seconds > episodes.duration_s * 1.05 + 1
                then 'tool calls of ' || round(acted.seconds, 1) || ' s in an episode of ' || round(episodes.duration_s, 1) || ' s'
            when tests.timed_out then 'the tests did not end'
            else 'solved without a call and an act'
        end as detail
    from episodes
    left join tests using (episode_id)
    left join marked using (episode_id)
    left join acted using (episode_id)
    left join solved using (episode_id)
)

select episode_id, weight::double as weight, detail
from found
where weight is not null
