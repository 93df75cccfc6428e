-- name: search
-- version: 1
-- kinds: search
-- grain: one row per search episode
-- inputs: episodes, evidence "answer" and "retrieval"
-- outcome: 1 where the given answer matches an accepted one, else 0
-- reward: the outcome; short of it 0.1 where the answer's page was found (listed by a search, or opened) and some answer was given
with answers as (
    select
        episode_id,
        (value ->> '$.match')::boolean as matched,
        (value ->> '$.given') is not null as given
    from evidence
    where name = 'answer'
),

retrievals as (
    select episode_id, (value ->> '$.hit')::boolean as hit
    from evidence
    where name = 'retrieval'
),

judged as (
    select
        episodes.episode_id,
        case
            when episodes.status not in ('ok', 'truncated', 'model_error') then 'not_trainable'
            when answers.matched is null then 'no_evidence'
            else 'scored'
        end as status,
        answers.matched,
        answers.given,
        coalesce(retrievals.hit, false) as hit
    from episodes
    left join answers using (episode_id)
    left join retrievals using (episode_id)
    where episodes.problem_kind = 'search'
)

select
    episode_id,
    status,
    if(status = 'scored', if(matched, 1.0, 0.0), null)::double as outcome,
    if(status = 'scored', if(matched, 1.0, if(hit and given, 0.1, 0.0)), null)::double as reward,
    if(status = 'scored', json_object('matched', matched, 'given', given, 'hit', hit), json_object())::varchar as components
from judged
