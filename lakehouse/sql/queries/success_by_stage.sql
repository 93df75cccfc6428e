-- question: How well does each version do on held-out problems?
-- grain: one row per version, kind and stage of evaluation
with newest as (
    select episode_id, rubric, rubric_version, status, outcome, reward
    from judgements
    qualify row_number() over (partition by episode_id order by rubric_version desc, labelled_at desc) = 1
)

select
    episodes.model_name,
    episodes.model_version,
    episodes.purpose,
    episodes.problem_kind,
    count(newest.outcome) as scored,
    avg(newest.outcome) as success,
    sqrt(avg(newest.outcome) * (1 - avg(newest.outcome)) / nullif(count(newest.outcome), 0)) as standard_error,
    avg(newest.reward) as reward
from episodes
inner join newest using (episode_id)
where episodes.split = 'eval' or episodes.purpose like 'eval%'
group by all
order by model_name, model_version, purpose, problem_kind
