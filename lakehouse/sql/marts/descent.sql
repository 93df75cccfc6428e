-- grain: one row per model version and version that went into it, itself included (distance 0): the one it was trained from, a
-- teacher or reference that its training read, and what went into these. `ancestry` is the line of parents alone.
-- distance: the fewest edges between the two. Paths are not counted out: there are as many as ways to take or leave a teacher.
-- They meet only at versions that went into several others (shared), so walks end there, and of each walk's continuation from one
-- shared version to the next the shortest alone is kept.
with recursive edges as materialized (
    from descent_edges
),

shared as materialized (
    select from_name as name, from_version as version
    from edges
    group by from_name, from_version
    having count(*) > 1
),

onwards as materialized (
    from edges
    anti join shared on edges.from_name = shared.name and edges.from_version = shared.version
),

-- every version, and each shared one also where it is none of the lake
starts as (
    select name, version
    from model_versions

    union

    from shared
),

-- from every version down to the shared ones: one path to each version on the way
walks as (
    select name, version, name as from_name, version as from_version, 0 as distance
    from starts

    union

    select walks.name, walks.version, onwards.from_name, onwards.from_version, walks.distance + 1
    from walks
    inner join onwards on walks.from_name = onwards.name and walks.from_version = onwards.version
    where walks.distance < 10000
),

-- the steps from there to the shared ones
arrivals as materialized (
    select walks.name, walks.version, edges.from_name, edges.from_version, min(walks.distance) + 1 as distance
    from walks
    inner join edges on walks.from_name = edges.name and walks.from_version = edges.version
    semi join shared on edges.from_name = shared.name and edges.from_version = shared.version
    group by walks.name, walks.version, edges.from_name, edges.from_version
),

-- from every version to each shared one: a pair is taken again for a shorter way alone
hops using key (name, version, from_name, from_version) as (
    from arrivals

    union

    select hops.name, hops.version, arrivals.from_name, arrivals.from_version, min(hops.distance + arrivals.distance)
    from hops
    inner join arrivals on hops.from_name = arrivals.name and hops.from_version = arrivals.version
    left join recurring.hops as known
        on
            hops.name = known.name
            and hops.version = known.version
            and arrivals.from_name = known.from_name
            and arrivals.from_version = known.from_version
    where known.name is null or hops.distance + arrivals.distance < known.distance
    group by hops.name, hops.version, arrivals.from_name, arrivals.from_version
),

reached as (
    from walks

    union all

    select hops.name, hops.version, walks.from_name, walks.from_version, hops.distance + walks.distance
    from hops
    inner join walks on hops.from_name = walks.name and hops.from_version = walks.version
)

select name, version, from_name, from_version, min(distance) as distance
from reached
semi join model_versions using (name, version)
group by all
