-- question: Why did episodes fail?
-- grain: one row per status, kind and cause, the commonest first
-- variables: run (a run id; all)
select
    status,
    problem_kind,
    left(split_part(coalesce(error, ''), chr(10), 1), 100) as cause,
    count(*) as episodes,
    max(ended_at) as last,
    any_value(episode_id) as example
from episodes
where status <> 'ok' and run_id = coalesce(getvariable('run'), run_id)
group by all
order by episodes desc, last desc
