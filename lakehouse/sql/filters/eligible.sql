-- grain: one row per episode in question; reason is NULL where nothing about the episode itself forbids training on it
-- variables: model_name (NULL = every model)
-- inputs: candidates, disputed
select
    *,
    case
        when model_name <> getvariable('model_name')::varchar then 'other_model'
        when split <> 'train' or purpose like 'eval%' then 'eval_split'
        when allowed_uses is null then 'unknown_problem'
        when not list_contains(allowed_uses, 'training') then 'licence'
        when consent not in ('given', 'not_needed') then 'consent'
        when not gates_passed then 'gates_failed'
        when status not in ('ok', 'truncated', 'model_error') then 'not_trainable'
        when reward_status is null then 'unlabelled'
        when reward_status <> 'scored' then reward_status
        when tokens_missing then 'tokens_missing'
        when episode_id in (select disputed.episode_id from disputed) then 'disputed'
    end as reason
from filters.candidates
