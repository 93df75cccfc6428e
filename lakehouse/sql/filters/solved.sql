-- grain: one row per episode that is left out, with the reason
-- keeps: episodes that solved their problem
-- inputs: before
select episode_id, 'not_solved' as reason
from before
where reason is null and outcome < 1
