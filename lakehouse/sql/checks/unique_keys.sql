-- grain: one row per table and key that is there more than once: there must be none
with keys as (
    select 'calls' as table_name, episode_id || ' ' || attempt_id || ' ' || call_index as key
    from bronze.calls
    union all
    select 'actions', episode_id || ' ' || attempt_id || ' ' || action_index
    from bronze.actions
    union all
    select 'evidence', episode_id || ' ' || attempt_id || ' ' || name || ' ' || producer
    from bronze.evidence
    union all
    select 'training_sets', training_set_id
    from training_sets
    union all
    select 'training_rows', training_set_id || ' ' || row_index
    from training_rows
    union all
    select 'model_versions', name || ' ' || version
    from model_versions
    union all
    select 'deployments', deployment_id
    from deployments
    union all
    select 'gates', gate_id
    from gates
)

select table_name, key, count(*) as n_rows
from keys
group by all
having count(*) > 1
