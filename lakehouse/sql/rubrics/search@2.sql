-- name: search
-- version: 2
-- kinds: search
-- grain: one row per search episode
-- inputs: episodes, evidence "answer" and "retrieval"
-- outcome: 1 where the given answer matches an accepted one, else 0
-- reward: the outcome; short of it 0.1 where the answer's page was found (listed by a search, or opened) and the given
--     answer is nearly right: it holds at least half the words of an accepted form, and not more words than that form
--     has. So lists, copied passages and words that fit any question earn nothing. Numbers and dates are right or wrong.
with answers as (
    select
        episode_id,
        (value ->> '$.match')::boolean as matched,
        (value ->> '$.given') is not null as given,
        regexp_extract_all(lower(strip_accents(value ->> '$.given')), '[a-z0-9]+') as given_words,
        list_transform(
            list_filter((value -> '$.accepted')::varchar[], lambda form: not regexp_matches(form, '^\W*[0-9]')),
            lambda form: regexp_extract_all(lower(strip_accents(form)), '[a-z0-9]+')
        ) as forms
    from evidence
    where name = 'answer'
),

nearness as (
    select
        episode_id,
        len(
            list_filter(
                forms,
                lambda form: len(given_words) <= len(form) and 2 * len(list_intersect(given_words, form)) >= len(form)
            )
        ) > 0 as near
    from answers
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
        coalesce(nearness.near, false) as near,
        coalesce(retrievals.hit, false) as hit
    from episodes
    left join answers using (episode_id)
    left join nearness using (episode_id)
    left join retrievals using (episode_id)
    where episodes.problem_kind = 'search'
)

select
    episode_id,
    status,
    if(status = 'scored', if(matched, 1.0, 0.0), null)::double as outcome,
    if(status = 'scored', if(matched, 1.0, if(hit and near, 0.1, 0.0)), null)::double as reward,
    if(status = 'scored', json_object('matched', matched, 'given', given, 'near', near, 'hit', hit), json_object())::varchar as components
from judged
