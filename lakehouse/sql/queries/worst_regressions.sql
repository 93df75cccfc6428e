-- question: Which problems got worse from one version to another?
-- grain: one row per problem that both versions tried, the worst first
-- variables: baseline (a version; the one before the newest), candidate (a version; the newest), kind (of problem; all)
with newest as (
    select episode_id, rubric, rubric_version, status, outcome, reward
    from judgements
    qualify row_number() over (partition by episode_id order by rubric_version desc, labelled_at desc) = 1
),

judged as (
    select episodes.model_version, episodes.problem_id, episodes.problem_kind, newest.outcome, newest.reward
    from episodes
    inner join newest using (episode_id)
    where newest.status = 'scored' and episodes.mode = 'policy' and episodes.model_version is not null
),

compared as (
    select
        coalesce(getvariable('candidate')::bigint, max(model_version)) as candidate,
        coalesce(getvariable('baseline')::bigint, max(model_version) filter (where model_version < newest_version)) as baseline
    from judged, (select max(model_version) as newest_version from judged)
)

select
    judged.problem_id,
    compared.baseline,
    compared.candidate,
    count(*) filter (where model_version = compared.baseline) as episodes_before,
    count(*) filter (where model_version = compared.candidate) as episodes_after,
    avg(outcome) filter (where model_version = compared.baseline) as success_before,
    avg(outcome) filter (where model_version = compared.candidate) as success_after,
    avg(outcome) filter (where model_version = compared.candidate)
    - avg(outcome) filter (where model_version = compared.baseline) as change,
    avg(reward) filter (where model_version = compared.candidate)
    - avg(reward) filter (where model_version = compared.baseline) as reward_change
from judged
cross join compared
where problem_kind = coalesce(getvariable('kind'), problem_kind)
group by all
having episodes_before > 0 and episodes_after > 0
order by change, reward_change, problem_id
