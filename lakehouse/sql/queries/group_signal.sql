-- question: How many groups give a gradient?
-- grain: one row per run and kind
with newest as (
    select episode_id, rubric, rubric_version, status, outcome, reward
    from judgements
    qualify row_number() over (partition by episode_id order by rubric_version desc, labelled_at desc) = 1
),

grouped as (
    select
        episodes.run_id,
        episodes.problem_kind,
        episodes.group_id,
        min(episodes.started_at) as started_at,
        count(newest.outcome) as scored,
        max(newest.outcome) - min(newest.outcome) as spread
    from episodes
    left join newest using (episode_id)
    where episodes.mode = 'policy' and episodes.purpose = 'train'
    group by all
)

select
    run_id,
    problem_kind,
    min(started_at) as started_at,
    count(*) as groups,
    count_if(spread > 1e-6) as with_gradient,
    count_if(scored < 2) as singletons,
    count_if(scored >= 2 and spread <= 1e-6) as all_alike,
    count_if(spread > 1e-6) / count(*) as share
from grouped
group by run_id, problem_kind
order by started_at desc, problem_kind
