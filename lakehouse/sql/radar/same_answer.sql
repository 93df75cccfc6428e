-- name: same_answer
-- sees: one answer given to many problems of a run, as a policy does that has stopped to look
-- weight: 0.5
-- grain: one row per episode with an answer that at least five problems and a fifth of its run's were given
-- inputs: evidence "answer", episodes
with given as (
    select
        episodes.run_id,
        episodes.agent,
        episodes.problem_kind,
        episodes.model_version,
        episodes.problem_id,
        evidence.episode_id,
        lower(trim(evidence.value ->> '$.given')) as answer
    from evidence
    inner join episodes using (episode_id)
    where evidence.name = 'answer' and trim(evidence.value ->> '$.given') <> ''
),

problems_of_run as (
    select run_id, agent, problem_kind, model_version, count(distinct problem_id) as problems
    from given
    group by all
),

popular as (
    select run_id, agent, problem_kind, model_version, answer, count(distinct problem_id) as problems
    from given
    group by all
),

together as (
    select popular.*, problems_of_run.problems as of_all
    from popular
    inner join problems_of_run
        on
            popular.run_id = problems_of_run.run_id
            and popular.agent = problems_of_run.agent
            and popular.problem_kind = problems_of_run.problem_kind
            and popular.model_version is not distinct from problems_of_run.model_version
)

select
    given.episode_id,
    0.5::double as weight,
    'the same answer to ' || together.problems || ' of ' || together.of_all || ' problems' as detail
from given
inner join together
    on
        given.run_id = together.run_id
        and given.agent = together.agent
        and given.problem_kind = together.problem_kind
        and given.model_version is not distinct from together.model_version
        and given.answer = together.answer
where together.problems >= 5 and together.problems >= 0.2 * together.of_all
