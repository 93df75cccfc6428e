-- question: Does a version cheat?
-- grain: one row per version, kind and purpose
select *
from radar_by_version
order by rate desc, flagged desc, model_name, model_version
