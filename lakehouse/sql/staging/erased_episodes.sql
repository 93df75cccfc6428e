-- grain: one row per erased episode, as what is left of its id; stone: 'er-' || substr(sha256(episode_id), 1, 24)
select distinct unnest(episode_ids) as stone
from bronze.erasures
