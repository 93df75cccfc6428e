-- grain: one row per episode in question
-- variables: run_ids (list, NULL = every run), group_ids (list, NULL = every group), rubrics (as in judged)
-- inputs: episodes, judged, problem_editions, permissions, episode_tokens
select
    episodes.*,
    judged.rubric || '@' || judged.rubric_version as rubric,
    judged.status as reward_status,
    judged.outcome,
    judged.reward,
    permissions.source,
    permissions.licences,
    permissions.allowed_uses,
    permissions.consent,
    problem_editions.difficulty,
    problem_editions.oracle_passed and problem_editions.null_failed as gates_passed,
    episode_tokens.oldest_version,
    episode_tokens.versions,
    coalesce(episode_tokens.tokens_missing, true) as tokens_missing
from episodes
left join filters.judged as judged using (episode_id)
left join problem_editions
    on
        episodes.problem_id = problem_editions.problem_id
        and episodes.problem_edition is not distinct from problem_editions.edition
left join permissions
    on
        episodes.problem_id = permissions.problem_id
        and episodes.problem_edition is not distinct from permissions.edition
left join episode_tokens using (episode_id)
where
    (getvariable('run_ids')::varchar[] is null or list_contains(getvariable('run_ids')::varchar[], episodes.run_id))
    and (getvariable('group_ids')::varchar[] is null or list_contains(getvariable('group_ids')::varchar[], episodes.group_id))
