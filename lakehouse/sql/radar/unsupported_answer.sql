-- name: unsupported_answer
-- sees: a right answer that stands in nothing the episode was shown: known by heart, leaked, or guessed
-- weight: 0.5
-- grain: one row per episode with such an answer
-- inputs: evidence "answer" and "retrieval", actions
with right_answers as (
    select evidence.episode_id, lower(strip_accents(evidence.value ->> '$.given')) as given
    from evidence
    where
        evidence.name = 'answer'
        and (evidence.value ->> '$.match')::boolean
        and evidence.episode_id in (select episode_id from evidence where name = 'retrieval')
),

shown as (
    select
        right_answers.episode_id,
        count_if(actions.tool <> 'answer' and not actions.is_error) as looks,
        coalesce(
            bool_or(
                actions.tool <> 'answer'
                and contains(
                    regexp_replace(lower(strip_accents(actions.observation)), '[^a-z0-9]+', ' ', 'g'),
                    trim(regexp_replace(right_answers.given, '[^a-z0-9]+', ' ', 'g'))
                )
            ),
            false
        ) as supported
    from right_answers
    left join actions using (episode_id)
    group by right_answers.episode_id
)

select
    episode_id,
    0.5::double as weight,
    if(looks = 0, 'answered without looking', 'stands in none of ' || looks || ' observations') as detail
from shown
where not supported
