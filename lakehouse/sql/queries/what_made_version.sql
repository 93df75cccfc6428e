-- question: Which problems and rewards made a version?
-- grain: one row per problem of the version's training set
-- variables: version (a version; the newest with a training set), model (a model; all)
with chosen as (
    select name, version, training_set_id
    from model_versions
    where
        training_set_id is not null
        and name = coalesce(getvariable('model'), name)
        and version = coalesce(getvariable('version')::bigint, version)
    qualify row_number() over (order by created_at desc, version desc) = 1
)

select
    chosen.name,
    chosen.version,
    episodes.problem_id,
    count(distinct training_rows.episode_id) as episodes,
    sum(list_sum(training_rows.loss_mask))::bigint as trained_tokens,
    avg(training_rows.reward) as reward,
    min(training_rows.advantage) as lowest_advantage,
    max(training_rows.advantage) as highest_advantage
from chosen
inner join training_rows using (training_set_id)
inner join episodes using (episode_id)
group by all
order by trained_tokens desc, problem_id
