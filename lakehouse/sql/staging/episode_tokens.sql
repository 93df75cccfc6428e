-- grain: one row per episode with at least one call: what its calls say about its tokens
select
    episode_id,
    count(*) as calls,
    sum(len(completion_token_ids))::bigint as completion_tokens,
    min(list_min(weight_versions)) as oldest_version,
    max(list_max(weight_versions)) as newest_version,
    list_distinct(flatten(list(list_distinct(weight_versions)))) as versions,
    bool_or(token_status = 'missing') as tokens_missing
from calls
group by episode_id
