-- question: What does a version cost, and a trained token?
-- grain: one row per model version and kind
with trained as (
    select episode_id, max(list_sum(loss_mask)) as tokens
    from training_rows
    group by episode_id
),

working as (
    select episode_id, sum(latency_s) as model_s
    from calls
    group by episode_id
),

newest as (
    select episode_id, rubric, rubric_version, status, outcome, reward
    from judgements
    qualify row_number() over (partition by episode_id order by rubric_version desc, labelled_at desc) = 1
)

select
    episodes.model_name,
    episodes.model_version,
    episodes.problem_kind,
    count(*) as episodes,
    sum(episodes.n_prompt_tokens)::bigint as prompt_tokens,
    sum(episodes.n_completion_tokens)::bigint as sampled_tokens,
    coalesce(sum(trained.tokens), 0)::bigint as trained_tokens,
    sum(episodes.n_completion_tokens) / nullif(sum(trained.tokens), 0) as sampled_per_trained,
    sum(working.model_s) as model_s,
    sum(episodes.duration_s) as episode_s,
    sum(episodes.n_completion_tokens) / nullif(count_if(newest.outcome >= 1), 0) as tokens_per_success
from episodes
left join trained using (episode_id)
left join working using (episode_id)
left join newest using (episode_id)
group by all
order by model_name, model_version, problem_kind
