-- grain: one row per completion token; position counts from 0 within its call
select
    episode_id,
    call_index,
    unnest(range(len(completion_token_ids)))::integer as position,
    unnest(completion_token_ids) as token_id,
    unnest(logprobs) as logprob,
    unnest(weight_versions) as weight_version
from calls
