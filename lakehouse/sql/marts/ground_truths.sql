-- grain: one row per problem and edition: what a grader compares an answer with, as text
-- python: the number; search: the accepted answers as JSON; other kinds: all that their grader needs, as JSON
select
    problem_id,
    edition,
    case
        when kind = 'python' then spec ->> '$.answer'
        when kind = 'search' then (spec -> '$.accepted')::varchar
        else spec
    end as ground_truth
from problem_editions
