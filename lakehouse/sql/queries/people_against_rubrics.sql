-- question: Where do people overrule the rubric?
-- grain: one row per review that says otherwise than the newest judgement by a rubric
with newest as (
    select episode_id, rubric || '@' || rubric_version as rubric, outcome, status
    from latest_rewards
    qualify row_number() over (partition by episode_id order by rubric_version desc, labelled_at desc) = 1
)

select
    reviews.episode_id,
    episodes.problem_kind,
    episodes.model_version,
    newest.rubric,
    newest.outcome as by_rubric,
    reviews.outcome as by_reviewer,
    reviews.queue,
    reviews.reviewed_at
from reviews
inner join newest using (episode_id)
inner join episodes using (episode_id)
where reviews.outcome is distinct from newest.outcome
order by reviewed_at desc
