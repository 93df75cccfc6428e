-- grain: one row per episode that is left out, with the reason
-- keeps: fresh policy samples, whatever the others of their group
-- variables: policy_version (the version training starts from), max_staleness (in steps of training)
-- inputs: before, ancestors
-- Every token must come from the policy or a version it was trained from. Its age is how many steps of training lie between.
with aged as (
    select
        *,
        len(list_filter(ancestors, lambda version: version > oldest_version)) as staleness,
        list_has_all(ancestors, versions) as descended
    from before
    left join filters.ancestors using (model_name)
)

select
    episode_id,
    case
        when mode <> 'policy' then 'not_policy'
        when reason is not null then reason
        when not descended then 'not_an_ancestor'
        when staleness > getvariable('max_staleness')::bigint then 'stale'
    end as reason
from aged
