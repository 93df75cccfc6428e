-- grain: one row per episode in question
-- keeps: demonstrations that solved their problem
-- inputs: eligible
with reasoned as (
    select
        * exclude (reason),
        case
            when mode <> 'demonstration' then 'not_a_demonstration'
            when reason is not null then reason
            when outcome < 1 then 'not_solved'
        end as reason
    from filters.eligible
)

select *, reason is null as keep
from reasoned
