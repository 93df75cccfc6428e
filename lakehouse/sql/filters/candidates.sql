-- grain: one row per episode in question
-- variables: run_ids (list, NULL = every run), rubrics (list such as ['swe@1'], NULL = every newest judgement)
-- inputs: episodes, problem_editions, latest_rewards, episode_tokens
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
    problem_editions.allowed_uses,
    problem_editions.oracle_passed and problem_editions.null_failed as gates_passed,
    episode_tokens.oldest_version,
    episode_tokens.versions,
    coalesce(episode_tokens.tokens_missing, true) as tokens_missing
from episodes
left join judgements using (episode_id)
left join problem_editions
    on
        episodes.problem_id = problem_editions.problem_id
        and episodes.problem_edition is not distinct from problem_editions.edition
left join episode_tokens using (episode_id)
where getvariable('run_ids')::varchar[] is null or list_contains(getvariable('run_ids')::varchar[], episodes.run_id)
