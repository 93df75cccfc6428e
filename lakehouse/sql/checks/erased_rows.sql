-- grain: one row per table and episode that is there although it was erased: there must be none; erase it again
with named as (
    select 'dispatches' as table_name, episode_id from bronze.dispatches
    union
    select 'episodes', episode_id from bronze.episodes
    union
    select 'calls', episode_id from bronze.calls
    union
    select 'actions', episode_id from bronze.actions
    union
    select 'evidence', episode_id from bronze.evidence
    union
    select 'rewards', episode_id from bronze.rewards
    union
    select 'call_rewards', episode_id from bronze.call_rewards
    union
    select 'reviews', episode_id from bronze.reviews
    union
    select 'training_rows', episode_id from bronze.training_rows
    union
    select 'quarantine', episode_id from bronze.quarantine
    union
    select 'redactions', episode_id from bronze.redactions
)

select table_name, episode_id
from named
semi join erased_episodes as erased on erased.stone = 'er-' || substr(sha256(episode_id), 1, 24)
