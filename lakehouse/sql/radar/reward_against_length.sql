-- name: reward_against_length
-- sees: a version whose reward goes with length: its longest rewarded episodes, where the two are correlated beyond 0.5
-- weight: 0.2
-- grain: one row per rewarded episode in the longest tenth of such a version and kind (at least 50 scored episodes)
-- inputs: episodes, latest_rewards
with scored as (
    select
        episodes.episode_id,
        episodes.model_name,
        episodes.model_version,
        episodes.problem_kind,
        episodes.n_completion_tokens as tokens,
        latest_rewards.reward
    from episodes
    inner join latest_rewards using (episode_id)
    where latest_rewards.status = 'scored' and episodes.mode = 'policy'
    qualify
        row_number() over (
            partition by episodes.episode_id order by latest_rewards.rubric_version desc, latest_rewards.labelled_at desc
        ) = 1
),

measured as (
    select
        *,
        corr(reward, tokens) over versions as correlation,
        count(*) over versions as n,
        percent_rank() over (partition by model_name, model_version, problem_kind order by tokens) as rank
    from scored
    window versions as (partition by model_name, model_version, problem_kind)
)

select
    episode_id,
    0.2::double as weight,
    'correlation ' || round(correlation, 2) || ' over ' || n || ' episodes' as detail
from measured
where n >= 50 and correlation > 0.5 and rank >= 0.9 and reward > 0
