-- grain: one row per model version that was trained on rows that were erased, or that such a version went into
-- because_of: the training set; erasure_id: the erasure that took rows of it
with recursive lost as (
    select distinct erasure_id, unnest(training_sets) as training_set_id
    from erasures
    where len(episode_ids) > 0
),

trained as (
    select
        model_versions.name,
        model_versions.version,
        min(lost.training_set_id) as because_of,
        min(lost.erasure_id) as erasure_id
    from lost
    inner join model_versions using (training_set_id)
    group by model_versions.name, model_versions.version
),

edges as materialized (
    from descent_edges
),

-- outwards from these: a lake without erasures has nothing to follow
tainted as (
    from trained

    union

    select edges.name, edges.version, tainted.because_of, tainted.erasure_id
    from tainted
    inner join edges on tainted.name = edges.from_name and tainted.version = edges.from_version
)

select name, version, min(because_of) as because_of, min(erasure_id) as erasure_id
from tainted
group by name, version
order by name, version
