-- grain: one row per model, with the version training starts from and all it was trained from
-- variables: policy_version (the version training starts from, NULL = none)
-- inputs: episodes, model_versions
-- After a rollback a version with a higher or lower number may be of another branch: how far that is from the policy no
-- difference of numbers says.
with recursive lineage as (
    select distinct model_name, getvariable('policy_version')::bigint as version
    from episodes
    where getvariable('policy_version') is not null

    union

    select lineage.model_name, model_versions.parent_version
    from lineage
    inner join model_versions on lineage.model_name = model_versions.name and lineage.version = model_versions.version
    where model_versions.parent_version is not null
)

select model_name, list(version) as ancestors
from lineage
group by model_name
