-- grain: one row per model version and version that went into it, itself included (distance 0): the one it was trained from, a
-- teacher or reference that its training read, and what went into these. `ancestry` is the line of parents alone.
with recursive edges as (
    select name, version, name as from_name, parent_version as from_version
    from model_versions
    where parent_version is not null

    union

    select
        name,
        version,
        regexp_extract(other, '^(.*)@\d+$', 1) as from_name,
        regexp_extract(other, '@(\d+)$', 1)::bigint as from_version
    from (select name, version, unnest(learnt_from) as other from model_versions)
),

chain as (
    select name, version, name as from_name, version as from_version, 0 as distance
    from model_versions

    union

    select chain.name, chain.version, edges.from_name, edges.from_version, chain.distance + 1
    from chain
    inner join edges on chain.from_name = edges.name and chain.from_version = edges.version
    where chain.distance < 10000
)

select name, version, from_name, from_version, min(distance) as distance
from chain
group by all
