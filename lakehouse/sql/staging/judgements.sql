-- grain: one row per episode, rubric and rubric version: the judgement that holds
-- A person outranks every rubric. Where the newest review of an episode says another outcome, that is outcome and reward; where
-- it says the same, the rubric's reward stays; where it says none, the episode is not trainable. Nobody makes a reward of a failure
-- of infrastructure, environment or harness: what the rubric calls not trainable stays so.
with verdicts as (
    select episode_id, outcome, reviewer
    from reviews
    qualify row_number() over (partition by episode_id order by reviewed_at desc, review_id desc) = 1
),

ruled as (
    select
        latest_rewards.*,
        verdicts.reviewer,
        verdicts.outcome as verdict,
        verdicts.episode_id is not null as reviewed
    from latest_rewards
    left join verdicts using (episode_id)
)

select
    * exclude (verdict) replace (
        case
            when not reviewed or status = 'not_trainable' then status
            when verdict is null then 'not_trainable'
            else 'scored'
        end as status,
        if(reviewed and status <> 'not_trainable', verdict, outcome) as outcome,
        if(reviewed and status <> 'not_trainable' and verdict is distinct from outcome, verdict, reward) as reward
    )
from ruled
