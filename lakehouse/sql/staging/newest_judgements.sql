-- grain: one row per episode and rubric: the judgement that holds, by the newest version of the rubric that judged it
select *
from judgements
qualify row_number() over (partition by episode_id, rubric order by rubric_version desc, labelled_at desc) = 1
