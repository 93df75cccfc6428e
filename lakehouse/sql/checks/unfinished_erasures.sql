-- grain: one row per erasure that was begun and not ended by a scan: there must be none; `lakeloop erase --resume` goes on
select erasure_id, requested_by, reason, min(erased_at) as begun_at
from bronze.erasures
group by erasure_id, requested_by, reason
having count(scanned) = 0
