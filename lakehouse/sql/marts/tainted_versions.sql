-- grain: one row per model version that was trained on rows that were erased, or that such a version went into
-- because_of: the training set; erasure_id: the erasure that took rows of it
with lost as (
    select distinct erasure_id, unnest(training_sets) as training_set_id
    from erasures
    where len(episode_ids) > 0
)

select descent.name, descent.version, min(lost.training_set_id) as because_of, min(lost.erasure_id) as erasure_id
from lost
inner join model_versions as trained using (training_set_id)
inner join descent on trained.name = descent.from_name and trained.version = descent.from_version
group by descent.name, descent.version
order by descent.name, descent.version
