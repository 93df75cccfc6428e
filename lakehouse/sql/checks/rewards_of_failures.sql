-- grain: one row per judgement that gives a number to a failure, or none to what it says is scored: there must be none
-- An episode that infrastructure, environment or harness ended says nothing about the policy: its reward is NULL, never 0.
select rewards.episode_id, rubric, rubric_version, episodes.status, rewards.status as reward_status, outcome, reward
from rewards
inner join episodes using (episode_id)
where
    (episodes.status not in ('ok', 'truncated', 'model_error') and (reward is not null or outcome is not null))
    or (rewards.status = 'scored' and (reward is null or outcome is null))
    or (rewards.status <> 'scored' and (reward is not null or outcome is not null))
    or isnan(reward)
    or isinf(reward)
