-- grain: one row per episode; reason is NULL where a copy of it may leave the lake
-- variables: use ("training" or "evaluation": what the copy is for; NULL = training)
-- inputs: episodes, problem_editions, permissions, judgements, disputed
-- A use that the newest edition of a problem, or its source, does not allow any more is withdrawn from the episodes of every edition.
with judged as (
    select *, rubric || '@' || rubric_version as rubric_used
    from judgements
    qualify row_number() over (partition by episode_id order by rubric_version desc, labelled_at desc) = 1
),

asked as (
    select coalesce(getvariable('use')::varchar, 'training') as use
)

select
    episodes.*,
    judged.outcome,
    judged.reward,
    judged.rubric_used as rubric,
    seen.source,
    seen.licence,
    case
        when permissions.allowed_uses is null then 'unknown_problem'
        when not list_contains(permissions.allowed_uses, asked.use) then 'licence'
        when permissions.consent not in ('given', 'not_needed') then 'consent'
        when not (seen.oracle_passed and seen.null_failed) then 'gates_failed'
        when asked.use = 'training' and (episodes.split <> 'train' or episodes.purpose like 'eval%') then 'eval_split'
        when episodes.status not in ('ok', 'truncated', 'model_error') then 'not_trainable'
        when judged.status is null then 'unlabelled'
        when judged.status <> 'scored' then judged.status
        when episodes.episode_id in (select disputed.episode_id from disputed) then 'disputed'
    end as reason
from episodes
cross join asked
left join judged using (episode_id)
left join problem_editions as seen
    on episodes.problem_id = seen.problem_id and episodes.problem_edition is not distinct from seen.edition
left join permissions
    on episodes.problem_id = permissions.problem_id and episodes.problem_edition is not distinct from permissions.edition
