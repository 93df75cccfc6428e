-- grain: one row per episode that an evaluation of a policy was to play
-- fate: scored; failed, by no doing of the policy (engine, gateway, box, environment, harness, time); unscored, where a reward is due
--   and there is none; mixed, whose tokens are of other weights than the version it began with; missing, which has not landed
with played as (
    select episodes.*, newest.status as reward_status, newest.outcome, newest.reward, episode_tokens.versions
    from episodes
    left join newest_judgements as newest on episodes.episode_id = newest.episode_id and episodes.problem_kind = newest.rubric
    left join episode_tokens on episodes.episode_id = episode_tokens.episode_id
)

select
    dispatches.run_id,
    dispatches.episode_id,
    dispatches.purpose,
    dispatches.problem_id,
    played.problem_edition,
    dispatches.sample_index,
    coalesce(played.problem_kind, split_part(dispatches.problem_id, '/', 1)) as problem_kind,
    played.model_name,
    played.model_version,
    played.status,
    case
        when played.episode_id is null then 'missing'
        when played.status not in ('ok', 'truncated', 'model_error') then 'failed'
        when len(list_filter(played.versions, lambda v: v <> played.model_version)) > 0 then 'mixed'
        when played.reward_status is distinct from 'scored' then 'unscored'
        else 'scored'
    end as fate,
    played.outcome,
    played.reward,
    played.n_completion_tokens as tokens
from dispatches
left join played using (episode_id)
where dispatches.mode = 'policy' and dispatches.purpose like 'eval%'
