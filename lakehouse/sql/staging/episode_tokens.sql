-- grain: one row per episode with at least one call: what its calls say about its tokens
-- counted by their weight versions, which stay when retention has emptied the ids
select
    episode_id,
    count(*) as calls,
    sum(len(weight_versions))::bigint as completion_tokens,
    min(list_min(weight_versions)) as oldest_version,
    max(list_max(weight_versions)) as newest_version,
    list_distinct(
        flatten(
            list(
                if(
                    list_min(weight_versions) = list_max(weight_versions),
                    [list_min(weight_versions)],
                    list_distinct(weight_versions)
                )
            )
        )
    ) as versions,
    bool_or(token_status = 'missing') as tokens_missing
from calls
group by episode_id
