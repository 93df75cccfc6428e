-- grain: one row per episode that one of the rubrics asked for has judged
-- variables: rubrics (list such as ['swe@1'], NULL = every newest judgement)
-- Where several have judged an episode, the one named first holds.
-- inputs: judgements
select *
from judgements
where
    getvariable('rubrics')::varchar[] is null
    or list_contains(getvariable('rubrics')::varchar[], rubric || '@' || rubric_version)
qualify
    row_number() over (
        partition by episode_id
        order by
            list_position(getvariable('rubrics')::varchar[], rubric || '@' || rubric_version),
            rubric_version desc,
            labelled_at desc
    ) = 1
