-- grain: one row per episode that is left out, with the reason
-- keeps: samples of groups of which every sample that was dispatched has a reward
-- inputs: before, dispatches
with asked as (
    select group_id, count(*) as samples
    from dispatches
    group by group_id
),

scored as (
    select group_id, count(outcome) as samples
    from before
    group by group_id
)

select before.episode_id, 'partial_group' as reason
from before
inner join asked using (group_id)
inner join scored using (group_id)
where before.reason is null and scored.samples < asked.samples
