-- question: Whose data, under which licence, was trained on?
-- grain: one row per version, source and licence
select
    model_versions.name,
    model_versions.version,
    problem_editions.source,
    problem_editions.licence,
    problem_editions.allowed_uses,
    count(distinct training_rows.episode_id) as episodes,
    sum(list_sum(training_rows.loss_mask))::bigint as trained_tokens
from model_versions
inner join training_rows using (training_set_id)
inner join episodes using (episode_id)
left join problem_editions
    on
        episodes.problem_id = problem_editions.problem_id
        and episodes.problem_edition is not distinct from problem_editions.edition
group by all
order by name, version, trained_tokens desc
