-- grain: one row per episode in question
-- variables: run_ids (list, NULL = every run), rubrics (list such as ['swe@1'], NULL = every newest judgement)
-- inputs: episodes, problems, latest_rewards, episode_tokens
with judgements as (
    select *
    from latest_rewards
    where
        getvariable('rubrics')::varchar[] is null
        or list_contains(getvariable('rubrics')::varchar[], rubric || '@' || rubric_version)
    qualify row_number() over (partition by episode_id order by rubric_version desc, labelled_at desc) = 1
)

select
    episodes.*,
    judgements.status as reward_status,
    judgements.outcome,
    judgements.reward,
    problems.allowed_uses,
    problems.oracle_passed and problems.null_failed as gates_passed,
    episode_tokens.oldest_version,
    episode_tokens.versions,
    coalesce(episode_tokens.tokens_missing, true) as tokens_missing
from episodes
left join judgements using (episode_id)
left join problems using (problem_id)
left join episode_tokens using (episode_id)
where getvariable('run_ids')::varchar[] is null or list_contains(getvariable('run_ids')::varchar[], episodes.run_id)
