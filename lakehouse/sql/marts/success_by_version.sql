-- grain: one row per model version, problem kind, purpose and rubric version
with judged as (
    select
        episodes.model_name,
        episodes.model_version,
        episodes.problem_kind,
        episodes.purpose,
        judgements.rubric || '@' || judgements.rubric_version as rubric,
        judgements.outcome
    from episodes
    inner join judgements using (episode_id)
)

select
    model_name,
    model_version,
    problem_kind,
    purpose,
    rubric,
    count(*) as episodes,
    count(outcome) as scored,
    sum(outcome) as solved,
    avg(outcome) as success
from judged
group by all
order by all
