-- grain: one row per model and weight version that sampled tokens and was never registered: there must be none
-- 0 is what an engine started with and -1 a demonstration; a model of which nothing was ever registered is not looked at.
with each_version as (
    select episodes.model_name, unnest(episode_tokens.versions) as version
    from episodes
    inner join episode_tokens using (episode_id)
),

sampled as (
    select model_name, version, count(*) as episodes
    from each_version
    group by all
)

select sampled.*
from sampled
semi join model_versions on sampled.model_name = model_versions.name
anti join model_versions on sampled.model_name = model_versions.name and sampled.version = model_versions.version
where sampled.version >= 1
