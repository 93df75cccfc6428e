-- question: Which episodes were sampled from several versions?
-- grain: one row per episode with tokens of more than one version
select
    episodes.episode_id,
    episodes.problem_id,
    episode_tokens.versions,
    episode_tokens.completion_tokens,
    episodes.started_at
from episodes
inner join episode_tokens using (episode_id)
where len(episode_tokens.versions) > 1
order by started_at desc
