-- grain: one row per episode whose calls or tokens are not those it counted: there must be none
select
    episodes.episode_id,
    episodes.n_calls,
    coalesce(episode_tokens.calls, 0) as calls,
    episodes.n_completion_tokens,
    coalesce(episode_tokens.completion_tokens, 0) as completion_tokens
from episodes
left join episode_tokens using (episode_id)
where
    episodes.n_calls <> coalesce(episode_tokens.calls, 0)
    or episodes.n_completion_tokens <> coalesce(episode_tokens.completion_tokens, 0)
