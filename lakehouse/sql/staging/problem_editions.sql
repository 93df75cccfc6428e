-- grain: one row per problem and edition: what the episodes of that edition saw (edition NULL: from before there were any)
select *
from bronze.problems
qualify row_number() over (partition by problem_id, edition order by created_at) = 1
