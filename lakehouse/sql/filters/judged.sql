-- grain: one row per episode that one of the rubrics asked for has judged
-- variables: rubrics (list such as ['swe@1'], NULL = every newest judgement)
-- inputs: judgements
select *
from judgements
where
    getvariable('rubrics')::varchar[] is null
    or list_contains(getvariable('rubrics')::varchar[], rubric || '@' || rubric_version)
qualify row_number() over (partition by episode_id order by rubric_version desc, labelled_at desc) = 1
