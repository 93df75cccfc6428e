-- name: repeated_answers
-- sees: answers given again and again, also after the episode's end, or in forms that are no text
-- weight: 0.5 from three on; 0.3 for two
-- grain: one row per episode with more than one call of `answer`
-- inputs: answers
select
    episode_id,
    if(count(*) >= 3, 0.5, 0.3)::double as weight,
    'answers: ' || count(*) || ', of them no text: ' || count_if(text is null) as detail
from answers
group by episode_id
having count(*) > 1
