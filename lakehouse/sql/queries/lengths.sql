-- question: Do episodes grow longer, and does it pay?
-- grain: one row per version and kind
with newest as (
    select episode_id, rubric, rubric_version, status, outcome, reward
    from judgements
    qualify row_number() over (partition by episode_id order by rubric_version desc, labelled_at desc) = 1
)

select
    episodes.model_name,
    episodes.model_version,
    episodes.problem_kind,
    count(*) as episodes,
    avg(n_calls) as turns,
    median(n_completion_tokens) as median_tokens,
    quantile_cont(n_completion_tokens, 0.95) as p95_tokens,
    count_if(episodes.status = 'truncated') / count(*) as truncated,
    avg(n_completion_tokens) filter (where newest.outcome >= 1) as tokens_when_solved,
    avg(n_completion_tokens) filter (where newest.outcome < 1) as tokens_when_not,
    corr(newest.reward, n_completion_tokens) as reward_against_length
from episodes
left join newest using (episode_id)
where episodes.mode = 'policy'
group by all
order by model_name, model_version, problem_kind
