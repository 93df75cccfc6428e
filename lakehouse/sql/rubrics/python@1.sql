-- name: python
-- version: 1
-- kinds: python
-- grain: one row per python episode
-- inputs: episodes, evidence "answer" and "python"
-- outcome: 1 where the given number is the right one, else 0
-- reward: the outcome
with answers as (
    select
        episode_id,
        (value ->> '$.match')::boolean as matched,
        (value ->> '$.given') is not null as given
    from evidence
    where name = 'answer'
),

uses as (
    select episode_id, (value ->> '$.cells')::integer as cells
    from evidence
    where name = 'python'
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
        coalesce(uses.cells, 0) as cells
    from episodes
    left join answers using (episode_id)
    left join uses using (episode_id)
    where episodes.problem_kind = 'python'
)

select
    episode_id,
    status,
    if(status = 'scored', if(matched, 1.0, 0.0), null)::double as outcome,
    if(status = 'scored', if(matched, 1.0, 0.0), null)::double as reward,
    if(status = 'scored', json_object('matched', matched, 'given', given, 'cells', cells), json_object())::varchar as components
from judged
