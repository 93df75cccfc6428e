-- question: Which tools go with success?
-- grain: one row per kind, tool and number of its calls in an episode (5: five and more)
with newest as (
    select episode_id, rubric, rubric_version, status, outcome, reward
    from judgements
    qualify row_number() over (partition by episode_id order by rubric_version desc, labelled_at desc) = 1
),

uses as (
    select episodes.episode_id, episodes.problem_kind, tools.tool, count(actions.action_index) as times
    from episodes
    inner join (
        select distinct episodes.problem_kind, actions.tool
        from actions
        inner join episodes using (episode_id)
    ) as tools on episodes.problem_kind = tools.problem_kind
    left join actions on episodes.episode_id = actions.episode_id and actions.tool = tools.tool
    where episodes.mode = 'policy'
    group by all
)

select
    uses.problem_kind,
    uses.tool,
    least(uses.times, 5) as times,
    count(*) as episodes,
    avg(newest.outcome) as success,
    avg(newest.reward) as reward
from uses
inner join newest using (episode_id)
where newest.status = 'scored'
group by all
order by problem_kind, tool, times
