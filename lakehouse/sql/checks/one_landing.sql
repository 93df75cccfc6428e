-- grain: one row per episode that landed more than once: there must be none
select episode_id, count(*) as landings
from bronze.episodes
group by episode_id
having count(*) > 1
