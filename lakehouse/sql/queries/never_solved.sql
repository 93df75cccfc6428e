-- question: Which problems were tried often and never solved?
-- grain: one row per such problem
-- variables: tries (at least so many scored episodes; 4)
with newest as (
    select episode_id, rubric, rubric_version, status, outcome, reward
    from judgements
    qualify row_number() over (partition by episode_id order by rubric_version desc, labelled_at desc) = 1
)

select
    episodes.problem_id,
    any_value(problems.title) as title,
    any_value(problems.difficulty) as difficulty,
    count(*) as tries,
    max(newest.reward) as best_reward,
    max(episodes.ended_at) as last_try
from episodes
inner join newest using (episode_id)
left join problems using (problem_id)
where newest.status = 'scored' and episodes.mode = 'policy'
group by episodes.problem_id
having count(*) >= coalesce(getvariable('tries')::bigint, 4) and max(newest.outcome) < 1
order by tries desc, problem_id
