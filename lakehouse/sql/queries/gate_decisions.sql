-- question: What did the gate decide of each version, and on what difference to the champion?
-- grain: one row per decision, the newest first
-- variables: version (only decisions about it; all)
select
    name,
    candidate,
    champion,
    passed,
    (measurements ->> '$.values.total.success_difference')::double as difference,
    (measurements ->> '$.values.total.success_difference_low')::double as low,
    (measurements ->> '$.values.total.success_difference_high')::double as high,
    (measurements ->> '$.values.total.pairs')::bigint as pairs,
    array_to_string(reasons, '; ') as reasons,
    decided_at,
    decided_by
from gates
where candidate = coalesce(getvariable('version')::bigint, candidate)
order by decided_at desc, gate_id
