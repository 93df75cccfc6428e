-- grain: one row per tool call that ran a shell command or code, with what was run
select
    episode_id,
    attempt_id,
    action_index,
    tool,
    coalesce(arguments ->> '$.command', arguments ->> '$.code') as command,
    observation,
    is_error,
    duration_s
from actions
where json_valid(arguments) and coalesce(arguments ->> '$.command', arguments ->> '$.code') is not null
