-- grain: one row per call that names a parent which its episode does not have: there must be none
select child.episode_id, child.call_index, child.parent_call_id
from calls as child
anti join calls as parent on child.episode_id = parent.episode_id and child.parent_call_id = parent.call_id
where child.parent_call_id is not null
