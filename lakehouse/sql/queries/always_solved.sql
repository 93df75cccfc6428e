-- question: Which problems teach nothing any more?
-- grain: one row per problem that the newest version that tried it always solves
-- variables: tries (at least so many scored episodes; 4)
with newest as (
    select episode_id, rubric, rubric_version, status, outcome, reward
    from judgements
    qualify row_number() over (partition by episode_id order by rubric_version desc, labelled_at desc) = 1
),

judged as (
    select episodes.problem_id, episodes.model_version, newest.outcome
    from episodes
    inner join newest using (episode_id)
    where newest.status = 'scored' and episodes.mode = 'policy'
    qualify episodes.model_version = max(episodes.model_version) over (partition by episodes.problem_id)
)

select judged.problem_id, judged.model_version, count(*) as tries, any_value(problems.difficulty) as difficulty
from judged
left join problems using (problem_id)
group by all
having count(*) >= coalesce(getvariable('tries')::bigint, 4) and min(outcome) >= 1
order by tries desc, problem_id
