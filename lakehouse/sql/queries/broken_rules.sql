-- question: Which rules of the gate refuse versions, and by how much?
-- grain: one row per rule and scope ("total", or a kind of problem) that refused something, the most frequent first
with told as (
    select name, candidate, decided_at, unnest((measurements -> '$.rules')::json[]) as verdict
    from gates
)

select
    verdict ->> '$.rule' as rule,
    verdict ->> '$.scope' as scope,
    count(*) as decisions,
    count(*) filter (verdict ->> '$.keeps' = 'false') as refused,
    max_by((verdict ->> '$.value')::double, decided_at) filter (verdict ->> '$.keeps' = 'false') as newest_value,
    max_by(name || '@' || candidate, decided_at) filter (verdict ->> '$.keeps' = 'false') as newest_version
from told
group by all
having refused > 0
order by refused desc, rule, scope
