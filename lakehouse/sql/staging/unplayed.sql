-- grain: one row per episode that shall run and has neither landed nor been refused
-- one in quarantine is not played again: what refused it mostly refuses it again, and a run must end
select dispatches.*
from dispatches
anti join bronze.episodes as landed using (episode_id)
anti join (from bronze.quarantine where table_name = 'episodes') as refused using (episode_id)
