-- grain: one row per episode that is left out, with the reason
-- keeps: whole groups up to so many episodes of each source of problems
-- settings: per_source=1000
-- inputs: before
-- Groups are drawn by a digest of their id: the same every time, and in no order that says anything about them.
with drawn as (
    select
        source,
        group_id,
        sum(count(*)) over (partition by source order by md5(group_id), group_id) as episodes
    from before
    where reason is null
    group by source, group_id
)

select before.episode_id, 'over_quota' as reason
from before
inner join drawn using (source, group_id)
where before.reason is null and drawn.episodes > getvariable('per_source')
