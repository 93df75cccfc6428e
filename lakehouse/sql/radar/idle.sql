-- name: idle
-- sees: work that does nothing: no change, only comments, whole modules removed, no answer
-- weight: 0.5 where modules were removed; 0.3 where only comments changed; 0.1 where nothing was handed in
-- grain: one row per episode that hands in nothing
-- inputs: evidence "patch" and "answer"
with patches as (
    select
        episode_id,
        (value ->> '$.empty')::boolean as empty,
        string_split(value ->> '$.diff', chr(10)) as lines
    from evidence
    where name = 'patch'
),

counted as (
    select
        episode_id,
        empty,
        len(list_filter(lines, lambda line: starts_with(line, '+++ /dev/null'))) as removed,
        len(
            list_filter(
                lines,
                lambda line: regexp_matches(line, '^[+-]') and not regexp_matches(line, '^(\+\+\+|---) ')
                    and not regexp_matches(line, '^[+-]\s*(#.*)?$')
            )
        ) as code
    from patches
)

select
    episode_id,
    case when removed > 0 then 0.5 when not empty then 0.3 else 0.1 end::double as weight,
    case when removed > 0 then 'modules removed: ' || removed when not empty then 'only comments' else 'no change' end as detail
from counted
where empty or removed > 0 or code = 0

union all

select episode_id, 0.1, 'no answer'
from evidence
where name = 'answer' and (value ->> '$.given') is null
