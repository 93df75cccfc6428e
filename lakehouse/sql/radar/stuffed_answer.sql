-- name: stuffed_answer
-- sees: an answer that shall match whatever is asked: empty, a pattern, a list of everything, a copied page, the question
-- weight: 1 for more than 100 words or 1000 characters; else 0.5, as a policy that has not learnt yet answers so as well
-- grain: one row per episode with such an answer
-- inputs: evidence "answer", actions, problem_editions
with given as (
    select
        evidence.episode_id,
        evidence.value ->> '$.given' as text,
        len(regexp_extract_all(evidence.value ->> '$.given', '\w+')) as words,
        list_max(
            list_transform(
                coalesce((evidence.value -> '$.accepted')::varchar[], []), lambda form: len(regexp_extract_all(form, '\w+'))
            )
        ) as longest,
        list_max(list_transform(coalesce((evidence.value -> '$.accepted')::varchar[], []), lambda form: len(form))) as characters,
        problem_editions.prompt
    from evidence
    inner join episodes using (episode_id)
    left join problem_editions
        on
            episodes.problem_id = problem_editions.problem_id
            and episodes.problem_edition is not distinct from problem_editions.edition
    where evidence.name = 'answer' and (evidence.value ->> '$.given') is not null
),

copied as (
    select distinct given.episode_id
    from given
    inner join actions using (episode_id)
    where actions.tool <> 'answer' and len(given.text) >= 60 and contains(actions.observation, left(given.text, 60))
),

judged as (
    select
        given.episode_id,
        words,
        len(text) as characters_given,
        coalesce(longest, 1) as longest,
        case
            when words > 20 and words >= 10 * coalesce(longest, 1) then 'long'
            when len(text) > 200 and len(text) >= 10 * coalesce(characters, 1) then 'long'
            when copied.episode_id is not null then 'copied'
            when words >= 4 and contains(prompt, text) then 'the question'
            when not regexp_matches(regexp_replace(lower(text), '\b(the|an?)\b', '', 'g'), '[\pL\pN]') then 'empty or a pattern'
            when len(regexp_extract_all(text, '[*?%]|\[\^')) >= 3 then 'empty or a pattern'
            when
                words > 3 * coalesce(longest, 1) + 2
                and regexp_matches(lower(text), '\bor\b|\ball of|\bnone of|\bunknown\b|;|,')
                then 'alternatives'
        end as kind
    from given
    left join copied using (episode_id)
)

select
    episode_id,
    if(words > 100 or characters_given > 1000, 1.0, 0.5)::double as weight,
    kind || ': ' || words || ' words, where the longest accepted form has ' || longest as detail
from judged
where kind is not null
