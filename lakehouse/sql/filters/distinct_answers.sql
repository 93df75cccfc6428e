-- grain: one row per episode that is left out, with the reason
-- keeps: the first of a problem's episodes that gave the very same answer or patch
-- inputs: before, evidence
with answers as (
    select
        episode_id,
        coalesce(
            max(value ->> '$.given') filter (where name = 'answer'),
            max(value ->> '$.diff') filter (where name = 'patch')
        ) as answer
    from evidence
    where name in ('answer', 'patch')
    group by episode_id
)

select episode_id, 'same_answer' as reason
from before
inner join answers using (episode_id)
where reason is null and answer is not null
qualify row_number() over (partition by problem_id, problem_edition, answer order by started_at, episode_id) > 1
