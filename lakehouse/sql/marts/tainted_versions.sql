-- grain: one row per model version that was trained on rows that were erased, or comes from one that was
-- because_of: the training set; erasure_id: the erasure that took rows of it
with recursive lost as (
    select distinct erasure_id, unnest(training_sets) as training_set_id
    from erasures
    where len(episode_ids) > 0
),

tainted as (
    select versions.name, versions.version, lost.training_set_id as because_of, lost.erasure_id
    from model_versions as versions
    inner join lost using (training_set_id)

    union

    select child.name, child.version, tainted.because_of, tainted.erasure_id
    from model_versions as child
    inner join tainted on child.name = tainted.name and child.parent_version = tainted.version
)

select name, version, min(because_of) as because_of, min(erasure_id) as erasure_id
from tainted
group by name, version
order by name, version
