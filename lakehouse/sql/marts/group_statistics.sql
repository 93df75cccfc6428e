-- grain: one row per episode, rubric and rubric version: how it stands in its group, and why it gives no gradient
-- A group is one edition of a problem in one run. An episode without a reward is NULL and out of every mean; it is no zero.
-- advantage: (reward - mean) / (std + 1e-4), sample std, over the scored episodes of the group (GRPO, arXiv 2402.03300)
-- group_reason: NULL where the group can be trained on. singleton_group: fewer than two scored episodes.
--     zero_variance_group: all outcomes the same, whatever the shaped rewards say.
-- reason: the episode's own status where it is not scored, else that of its group
with judged as (
    select
        episodes.group_id,
        episodes.run_id,
        episodes.problem_id,
        episodes.problem_kind,
        judgements.episode_id,
        judgements.rubric,
        judgements.rubric_version,
        judgements.status,
        judgements.outcome,
        judgements.reward
    from judgements
    inner join episodes using (episode_id)
),

grouped as (
    select
        *,
        count(*) over siblings as group_episodes,
        count(reward) over siblings as group_scored,
        avg(reward) over siblings as group_mean,
        stddev_samp(reward) over siblings as group_std,
        max(outcome) over siblings - min(outcome) over siblings as group_spread
    from judged
    window siblings as (partition by group_id, rubric, rubric_version)
),

reasoned as (
    select
        *,
        (reward - group_mean) / (group_std + 1e-4) as advantage,
        case
            when group_scored < 2 then 'singleton_group'
            when group_spread < 1e-6 then 'zero_variance_group'
        end as group_reason
    from grouped
)

select *, if(status = 'scored', group_reason, status) as reason
from reasoned
