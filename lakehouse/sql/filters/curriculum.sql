-- grain: one row per episode that is left out, with the reason
-- keeps: problems that the model solves sometimes: neither hardly ever nor nearly always
-- settings: min_success=0.1, max_success=0.9, min_attempts=4
-- inputs: before, episodes, judged
-- The rate is over every scored attempt of any policy of that model at that edition of the problem, in all runs. A problem with fewer
-- attempts than `min_attempts` has no rate yet and is kept.
with rates as (
    select
        episodes.problem_id,
        episodes.problem_edition,
        episodes.model_name,
        count(judged.outcome) as attempts,
        avg(judged.outcome) as success
    from episodes
    inner join filters.judged as judged using (episode_id)
    where episodes.mode = 'policy' and episodes.purpose not like 'eval%'
    group by all
)

select
    before.episode_id,
    case
        when rates.success < getvariable('min_success') then 'too_hard'
        when rates.success > getvariable('max_success') then 'too_easy'
    end as reason
from before
inner join rates
    on
        before.problem_id = rates.problem_id
        and before.problem_edition is not distinct from rates.problem_edition
        and before.model_name = rates.model_name
where before.reason is null and rates.attempts >= getvariable('min_attempts')
