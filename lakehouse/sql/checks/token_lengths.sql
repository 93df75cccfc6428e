-- grain: one row per call whose lists do not have one value per completion token: there must be none
-- (retention empties the ids and leaves the other lists)
select episode_id, attempt_id, call_index, len(completion_token_ids) as tokens, len(logprobs) as logprobs, len(weight_versions) as versions
from bronze.calls
where
    (len(completion_token_ids) > 0 or token_status <> 'missing')
    and (
        len(weight_versions) <> len(completion_token_ids)
        or (logprobs is not null and len(logprobs) <> len(completion_token_ids))
        or (redacted is not null and len(redacted) <> len(completion_token_ids))
    )
