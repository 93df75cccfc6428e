-- grain: one row per episode that is left out, with the reason
-- keeps: demonstrations that solved their problem
-- inputs: before
select
    episode_id,
    case
        when mode <> 'demonstration' then 'not_a_demonstration'
        when reason is null and outcome < 1 then 'not_solved'
    end as reason
from before
