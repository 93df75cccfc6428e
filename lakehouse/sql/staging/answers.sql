-- grain: one row per call of the tool `answer`; text is NULL where the argument was not a text
select
    episode_id,
    attempt_id,
    action_index,
    case when json_valid(arguments) and json_type(arguments, '$.text') = 'VARCHAR' then arguments ->> '$.text' end as text,
    arguments,
    is_error
from actions
where tool = 'answer'
