-- grain: one row per episode and pair of witnesses that disagree about it
-- between: rubrics (the newest versions of two say solved and not), gradings (a second run of the tests said otherwise),
--     judges (two producers of one evidence differ by half a score), reviewers (two people's verdicts differ)
-- spread: 0 to 1
with newest as (
    select episode_id, rubric || '@' || rubric_version as rubric, outcome
    from latest_rewards
    where status = 'scored'
    qualify rubric_version = max(rubric_version) over (partition by episode_id, latest_rewards.rubric)
),

rubrics as (
    select
        a.episode_id,
        'rubrics' as between,
        abs(a.outcome - b.outcome) as spread,
        a.rubric || ' says ' || a.outcome || ', ' || b.rubric || ' says ' || b.outcome as detail
    from newest as a
    inner join newest as b on a.episode_id = b.episode_id and a.rubric < b.rubric
    where (a.outcome >= 0.5) <> (b.outcome >= 0.5)
),

gradings as (
    select distinct episode_id, 'gradings' as between, 1.0::double as spread, name || ': a second run said otherwise' as detail
    from evidence
    where (value ->> '$.again.same')::boolean is false
),

scores as (
    select episode_id, name, (value ->> '$.score')::double as score
    from evidence
    where value ->> '$.status' = 'scored'
),

judges as (
    select
        episode_id,
        'judges' as between,
        least(max(score) - min(score), 1.0) as spread,
        name || ': scores from ' || min(score) || ' to ' || max(score) as detail
    from scores
    group by episode_id, name
    having max(score) - min(score) >= 0.5
),

reviewers as (
    select
        episode_id,
        'reviewers' as between,
        coalesce(max(outcome) - min(outcome), 1.0) as spread,
        string_agg(reviewer || ' says ' || coalesce(outcome::varchar, 'unclear'), ', ' order by reviewer) as detail
    from latest_reviews
    group by episode_id
    having count(distinct coalesce(outcome, -1)) > 1
)

from rubrics
union all by name
from gradings
union all by name
from judges
union all by name
from reviewers
