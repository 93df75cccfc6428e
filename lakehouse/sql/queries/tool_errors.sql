-- question: Which tool calls fail?
-- grain: one row per kind and tool
select
    episodes.problem_kind,
    actions.tool,
    count(*) as calls,
    count_if(actions.is_error) as errors,
    count_if(actions.is_error) / count(*) as share,
    count_if(not json_valid(actions.arguments)) as malformed,
    mode(left(split_part(actions.observation, chr(10), 1), 60)) filter (where actions.is_error) as commonest_error
from actions
inner join episodes using (episode_id)
where episodes.mode = 'policy'
group by all
order by errors desc, calls desc
