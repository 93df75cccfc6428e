-- question: Which tokens of an episode were the least likely?
-- grain: one row per token, the least likely first
-- variables: episode (an episode id; the newest sampled one), last (rows; 20)
with chosen as (
    select coalesce(
        getvariable('episode'), (select arg_max(episode_id, started_at) from episodes where mode = 'policy' and n_completion_tokens > 0)
    ) as episode_id
)

select tokens.episode_id, call_index, position, token_id, logprob, exp(logprob) as probability, weight_version
from tokens
where tokens.episode_id = (select episode_id from chosen) and logprob is not null
order by logprob, call_index, position
limit coalesce(getvariable('last')::bigint, 20)
