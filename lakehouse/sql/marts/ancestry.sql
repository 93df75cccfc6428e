-- grain: one row per model version and version that it comes from, itself included (distance 0)
with recursive chain as (
    select name, version, version as ancestor, 0 as distance
    from model_versions

    union

    select chain.name, chain.version, model_versions.parent_version, chain.distance + 1
    from chain
    inner join model_versions on chain.name = model_versions.name and chain.ancestor = model_versions.version
    where model_versions.parent_version is not null and chain.distance < 10000
)

select *
from chain
