-- grain: one row per training set and episode that trains more tokens of it than were sampled and left as they were: there must
--     be none
with trained as (
    select training_set_id, episode_id, sum(list_sum(loss_mask)) as tokens
    from training_rows
    group by all
),

left_as_they_were as (
    select episode_id, sum(len(completion_token_ids) - coalesce(list_sum(redacted), 0)) as tokens
    from calls
    group by episode_id
)

select trained.training_set_id, trained.episode_id, trained.tokens as trained, left_as_they_were.tokens as sampled
from trained
inner join left_as_they_were using (episode_id)
where trained.tokens > left_as_they_were.tokens
