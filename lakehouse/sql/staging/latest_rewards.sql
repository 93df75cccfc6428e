-- grain: one row per episode, rubric and rubric version: the judgement that holds
select *
from rewards
qualify row_number() over (partition by episode_id, rubric, rubric_version order by labelled_at desc) = 1
