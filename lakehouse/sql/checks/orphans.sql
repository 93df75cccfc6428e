-- grain: one row per table and attempt whose children landed without their episode; harmless, and hidden by staging
-- level: note
with children as (
    select 'calls' as table_name, episode_id, attempt_id from bronze.calls
    union all
    select 'actions', episode_id, attempt_id from bronze.actions
    union all
    select 'evidence', episode_id, attempt_id from bronze.evidence
)

select table_name, episode_id, attempt_id, count(*) as n_rows
from children
anti join bronze.episodes using (episode_id, attempt_id)
group by all
