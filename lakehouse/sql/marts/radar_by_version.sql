-- grain: one row per model version, problem kind and purpose: how often the radar saw something
-- rate: share of the episodes in which a severe detector fired; flagged: those in which any did
with seen as (
    select
        episode_id,
        bool_or(severe) as severe,
        list(distinct detector order by detector) filter (where severe) as detectors
    from radar
    group by episode_id
)

select
    episodes.model_name,
    episodes.model_version,
    episodes.problem_kind,
    episodes.purpose,
    count(*) as episodes,
    count(seen.episode_id) as flagged,
    count_if(coalesce(seen.severe, false))::bigint as severe,
    count_if(coalesce(seen.severe, false)) / count(*) as rate,
    coalesce(list_sort(list_distinct(flatten(list(seen.detectors) filter (where seen.detectors is not null)))), []) as detectors
from episodes
left join seen using (episode_id)
where episodes.mode = 'policy' and episodes.status in ('ok', 'truncated', 'model_error')
group by all
order by all
