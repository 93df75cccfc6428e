-- grain: one row per episode that came twice with different payloads: which is true nobody can tell
select distinct episode_id
from quarantine
where rule like 'an episode id has one payload: %'
