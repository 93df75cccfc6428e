-- grain: one row per episode and reviewer: the verdict that holds
select *
from reviews
qualify row_number() over (partition by episode_id, reviewer order by reviewed_at desc, review_id desc) = 1
