-- grain: one row per model and weight version that sampled tokens and nobody knows of: there must be none
-- Known is what was released, its parents, and what was deployed: a version may be registered in MLflow by hand.
-- 0 is what an engine started with and -1 a demonstration; a model of which nothing was ever released is not looked at.
with each_version as (
    select episodes.model_name, unnest(episode_tokens.versions) as version
    from episodes
    inner join episode_tokens using (episode_id)
),

sampled as (
    select model_name, version, count(*) as episodes
    from each_version
    group by all
),

known as (
    select name, version
    from model_versions

    union

    select name, parent_version
    from model_versions

    union

    select name, version
    from deployments
    where accepted
)

select sampled.*
from sampled
semi join model_versions on sampled.model_name = model_versions.name
anti join known on sampled.model_name = known.name and sampled.version = known.version
where sampled.version >= 1
