-- grain: one row per episode, training set and model version that it reached; no version: the set trained none so far
-- distance: 0 for the version that was trained on the set, 1 for one trained from that version or with it as a teacher, and so on
with reached as (
    select model_versions.training_set_id, descent.name, descent.version, descent.distance
    from model_versions
    inner join descent on model_versions.name = descent.from_name and model_versions.version = descent.from_version
    where model_versions.training_set_id is not null
)

select
    trained_on.episode_id,
    trained_on.training_set_id,
    trained_on.n_rows,
    trained_on.trained_tokens,
    reached.name,
    reached.version,
    reached.distance
from trained_on
left join reached using (training_set_id)
