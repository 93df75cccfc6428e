-- grain: one row per episode, call, rubric and rubric version: the judgement that holds
select *
from call_rewards
qualify row_number() over (partition by episode_id, call_id, rubric, rubric_version order by labelled_at desc) = 1
