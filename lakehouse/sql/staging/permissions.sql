-- grain: one row per problem and edition: what may be done with the data of its episodes
-- inputs: problem_editions, problems, sources
-- Three have a say, and each can only take away: the edition that was seen, the problem's newest one, and the newest declaration of
-- its source (that of "*" for a source without its own). Without a declaration `consent` is NULL.
with declared as (
    select *
    from sources
    qualify row_number() over (partition by source order by declared_at desc) = 1
),

said as (
    select
        seen.problem_id,
        seen.edition,
        seen.source,
        seen.licence,
        seen.allowed_uses,
        newest.allowed_uses as newest_uses,
        if(own.source is null, fallback.licence, own.licence) as declared_licence,
        if(own.source is null, fallback.allowed_uses, own.allowed_uses) as declared_uses,
        if(own.source is null, fallback.consent, own.consent) as consent
    from problem_editions as seen
    inner join problems as newest on seen.problem_id = newest.problem_id
    left join declared as own on seen.source = own.source
    left join declared as fallback on fallback.source = '*'
)

select
    problem_id,
    edition,
    source,
    list_sort(list_distinct(list_filter([licence, declared_licence], lambda one: one is not null))) as licences,
    list_filter(
        allowed_uses,
        lambda use:
        list_contains(newest_uses, use)
        and (declared_uses is null or list_contains(declared_uses, use))
    ) as allowed_uses,
    consent
from said
