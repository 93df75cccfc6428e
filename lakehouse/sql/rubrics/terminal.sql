-- name: terminal
-- version: 1
-- grain: one row per terminal episode
-- inputs: episodes, evidence "verifier"
-- outcome: 1 where the tests' reward is at least 1, else 0; tests that did not end in the time their oracle had left are a 0
-- reward: as the tests gave it
with verdicts as (
    select
        episode_id,
        (value ->> '$.reward')::double as given,
        (value ->> '$.timed_out')::boolean as timed_out,
        coalesce(given, if(timed_out, 0.0, null)) as reward
    from evidence
    where name = 'verifier'
),

judged as (
    select
        episodes.episode_id,
        case
            when episodes.status not in ('ok', 'truncated', 'model_error') then 'not_trainable'
            when verdicts.reward is null then 'no_evidence'
            else 'scored'
        end as status,
        verdicts.reward,
        verdicts.timed_out
    from episodes
    left join verdicts using (episode_id)
    where episodes.problem_kind = 'terminal'
)

select
    episode_id,
    status,
    if(status = 'scored', if(reward >= 1, 1.0, 0.0), null)::double as outcome,
    if(status = 'scored', reward, null)::double as reward,
    if(status = 'scored', json_object('timed_out', timed_out), json_object())::varchar as components
from judged
