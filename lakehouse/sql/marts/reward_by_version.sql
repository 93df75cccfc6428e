-- grain: one row per model version, problem kind and rubric version
with judged as (
    select
        episodes.model_name,
        episodes.model_version,
        episodes.problem_kind,
        judgements.rubric || '@' || judgements.rubric_version as rubric,
        judgements.reward
    from episodes
    inner join judgements using (episode_id)
)

select
    model_name,
    model_version,
    problem_kind,
    rubric,
    count(*) as episodes,
    count(reward) as scored,
    avg(reward) as mean_reward,
    stddev_samp(reward) as reward_std
from judged
group by all
order by all
