-- name: degenerate_output
-- sees: sampled text that goes round in circles: few different tokens over a long stretch, or one word again and again
-- weight: 0.3
-- grain: one row per episode with such a call or answer
-- inputs: calls, answers
with looping as (
    select
        episode_id,
        len(completion_token_ids) as tokens,
        len(list_distinct(completion_token_ids)) as distinct_tokens
    from calls
    where token_route <> 'demonstration' and len(completion_token_ids) >= 64
),

worded as (
    select
        episode_id,
        string_split(left(text, 20000), ' ') as words
    from answers
    where len(text) >= 200
),

found as (
    select episode_id, distinct_tokens || ' different tokens of ' || tokens as detail, distinct_tokens::double / tokens as share
    from looping
    where distinct_tokens < 0.15 * tokens

    union all

    select episode_id, len(list_distinct(words)) || ' different words of ' || len(words), len(list_distinct(words))::double / len(words)
    from worded
    where len(words) >= 50 and len(list_distinct(words)) < 0.15 * len(words)
)

select episode_id, 0.3::double as weight, arg_min(detail, share) as detail
from found
group by episode_id
