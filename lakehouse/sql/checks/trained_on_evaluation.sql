-- grain: one row per training set and episode that was held out and trained on all the same: there must be none
select distinct training_rows.training_set_id, training_rows.episode_id, episodes.split, episodes.purpose
from training_rows
inner join episodes using (episode_id)
where episodes.split <> 'train' or episodes.purpose like 'eval%'
