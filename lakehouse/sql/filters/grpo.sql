-- grain: one row per episode that is left out, with the reason
-- keeps: fresh policy samples of groups whose outcomes differ
-- variables: policy_version (the version training starts from), max_staleness (in versions)
-- inputs: before, model_versions
-- Every token must come from the policy or a version it was trained from. After a rollback a version with a higher or lower
-- number may be of another branch: how far that is from the policy no difference of numbers says.
-- The group is judged over all its scored episodes, whether or not each is kept; by outcome, never by shaped reward.
with recursive lineage as (
    select distinct model_name, getvariable('policy_version')::bigint as version
    from before
    where getvariable('policy_version') is not null

    union

    select lineage.model_name, model_versions.parent_version
    from lineage
    inner join model_versions on lineage.model_name = model_versions.name and lineage.version = model_versions.version
    where model_versions.parent_version is not null
),

ancestors as (
    select model_name, list(version) as ancestors
    from lineage
    group by model_name
),

grouped as (
    select
        *,
        getvariable('policy_version')::bigint - oldest_version as staleness,
        list_has_all(ancestors, versions) as descended,
        count(outcome) over siblings as group_scored,
        max(outcome) over siblings - min(outcome) over siblings as group_spread
    from before
    left join ancestors using (model_name)
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
