-- grain: one row per episode that shall run; a restarted run may dispatch the same episode again
select *
from bronze.dispatches
qualify row_number() over (partition by episode_id order by created_at) = 1
