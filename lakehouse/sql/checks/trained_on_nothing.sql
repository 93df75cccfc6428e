-- grain: one row per training row of an episode that never landed, or without a token that is trained: there must be none
select training_rows.training_set_id, training_rows.row_index, training_rows.episode_id
from training_rows
left join episodes using (episode_id)
where episodes.episode_id is null or list_sum(loss_mask) = 0
