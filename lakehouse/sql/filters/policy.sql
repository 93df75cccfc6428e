-- grain: one row per episode that is left out, with the reason
-- keeps: what a policy sampled, no demonstrations
-- inputs: before
select episode_id, 'not_policy' as reason
from before
where mode <> 'policy'
