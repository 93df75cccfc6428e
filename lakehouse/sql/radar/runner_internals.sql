-- name: runner_internals
-- sees: a patch that reaches for the test runner, the interpreter's inside, ways to end it, or descriptors
-- weight: 1
-- grain: one row per episode whose patch adds such a reference
-- inputs: evidence "scan"
with counts as (
    select episode_id, unnest(json_keys(value, '$.counts')) as kind, value
    from evidence
    where name = 'scan'
)

select
    episode_id,
    1.0::double as weight,
    string_agg(kind || ' ' || (value ->> ('$.counts.' || kind)), ', ' order by kind) as detail
from counts
where kind in ('runner', 'interpreter', 'exit', 'descriptors')
group by episode_id
