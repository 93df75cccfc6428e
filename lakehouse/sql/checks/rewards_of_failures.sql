-- grain: one row per reward of a rubric, or judgement that holds, that gives a number to a failure, or none to what it says is scored: there must be none
-- An episode that infrastructure, environment or harness ended says nothing about the policy: its reward is NULL, never 0.
with judged as (
    select episode_id, rubric, rubric_version, status, outcome, reward
    from rewards
    union
    select episode_id, rubric, rubric_version, status, outcome, reward
    from judgements
)

select judged.episode_id, rubric, rubric_version, episodes.status, judged.status as reward_status, outcome, reward
from judged
inner join episodes using (episode_id)
where
    (episodes.status not in ('ok', 'truncated', 'model_error') and (reward is not null or outcome is not null))
    or (judged.status = 'scored' and (reward is null or outcome is null))
    or (judged.status <> 'scored' and (reward is not null or outcome is not null))
    or isnan(reward)
    or isinf(reward)
