-- grain: one row per measured fact of a landed attempt; orphans of killed or late attempts are hidden
with landed as (
    select episode_id, attempt_id from bronze.episodes
)

select child.*
from bronze.evidence as child
semi join landed using (episode_id, attempt_id)
