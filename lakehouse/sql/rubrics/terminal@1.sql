-- name: terminal
-- version: 1
-- kinds: terminal
-- grain: one row per terminal episode
-- inputs: episodes, evidence "verifier"
-- outcome: 1 where the tests' reward is at least 1, else 0
-- note: tests that did not end, or said nothing, give 0; they did both with the oracle's work, so it is the agent's doing
-- reward: as the tests gave it
with verdicts as (
    select
        episode_id,
        coalesce((value ->> '$.reward')::double, 0.0) as reward,
        (value ->> '$.timed_out')::boolean as timed_out
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
