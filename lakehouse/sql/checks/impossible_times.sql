-- grain: one row per episode or call that ended before it began, or took negative time: there must be none
select episode_id, null::bigint as call_index, duration_s as seconds
from episodes
where ended_at < started_at or duration_s < 0 or isnan(duration_s)

union all

select episode_id, call_index, latency_s
from calls
where latency_s < 0 or isnan(latency_s)
