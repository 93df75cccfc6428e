-- grain: one row per problem, its newest edition
select *
from bronze.problems
qualify row_number() over (partition by problem_id order by created_at desc) = 1
