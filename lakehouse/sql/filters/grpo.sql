-- grain: one row per episode that is left out, with the reason
-- keeps: fresh policy samples of groups whose outcomes differ
-- variables: policy_version (the version training starts from), max_staleness (in steps of training)
-- inputs: before, ancestors
-- Fresh as in `fresh`. The group is judged over all its scored episodes, whether or not each is kept; by outcome, never by
-- shaped reward.
with grouped as (
    select
        *,
        len(list_filter(ancestors, lambda version: version > oldest_version)) as staleness,
        list_has_all(ancestors, versions) as descended,
        count(outcome) over siblings as group_scored,
        max(outcome) over siblings - min(outcome) over siblings as group_spread
    from before
    left join filters.ancestors using (model_name)
    window siblings as (partition by group_id)
)

select
    episode_id,
    case
        when mode <> 'policy' then 'not_policy'
        when reason is not null then reason
        when not descended then 'not_an_ancestor'
        when staleness > getvariable('max_staleness')::bigint then 'stale'
        when group_scored < 2 then 'singleton_group'
        when group_spread < 1e-6 then 'zero_variance_group'
    end as reason
from grouped
