-- grain: one row per call with a log-prob that is none: above 0, infinite or not a number: there must be none
select episode_id, attempt_id, call_index
from bronze.calls
where logprobs is not null and len(list_filter(logprobs, lambda x: not isfinite(x) or x > 1e-3)) > 0
