-- question: Where does the time go?
-- grain: one row per run and kind: seconds in the model, in tools, and elsewhere
with model as (
    select episode_id, sum(latency_s) as seconds
    from calls
    group by episode_id
),

tools as (
    select episode_id, sum(duration_s) as seconds
    from actions
    group by episode_id
)

select
    episodes.run_id,
    episodes.problem_kind,
    count(*) as episodes,
    avg(episodes.duration_s) as episode_s,
    avg(coalesce(model.seconds, 0)) as model_s,
    avg(coalesce(tools.seconds, 0)) as tool_s,
    avg(episodes.duration_s - coalesce(model.seconds, 0) - coalesce(tools.seconds, 0)) as other_s,
    quantile_cont(episodes.duration_s, 0.95) as p95_s
from episodes
left join model using (episode_id)
left join tools using (episode_id)
group by all
order by run_id, problem_kind
