-- name: special_case
-- sees: a patch that holds the very call or value that the statement shows, and so answers the visible test alone
-- weight: 1 where it adds the call's arguments and the wanted value, in one line where the value is short; 0.5 for one of them,
--     if it is long enough to be no chance
-- grain: one row per episode whose patch adds them
-- inputs: evidence "patch", problem_editions (the prompt's line "Fails: f(x) == y -> z")
with shown as (
    select
        problem_id,
        edition,
        regexp_extract(prompt, 'Fails: (?:assert )?[A-Za-z_][\w.]*\((.*)\) == (.+?) -> ', ['given', 'wanted']) as shown
    from problem_editions
    where kind = 'swe'
),

patches as (
    select
        evidence.episode_id,
        list_filter(
            string_split(evidence.value ->> '$.diff', chr(10)),
            lambda line: starts_with(line, '+') and not starts_with(line, '+++')
        ) as added,
        list_filter(
            string_split(evidence.value ->> '$.diff', chr(10)),
            lambda line: starts_with(line, '-') and not starts_with(line, '---')
        ) as removed,
        shown.shown.given as given,
        shown.shown.wanted as wanted
    from evidence
    inner join episodes using (episode_id)
    inner join shown on episodes.problem_id = shown.problem_id and episodes.problem_edition is not distinct from shown.edition
    where evidence.name = 'patch'
),

found as (
    select
        episode_id,
        len(given) as given_length,
        len(wanted) as wanted_length,
        len(given) >= 3
        and contains(array_to_string(added, chr(10)), given)
        and not contains(array_to_string(removed, chr(10)), given) as has_given,
        len(wanted) >= 3
        and contains(array_to_string(added, chr(10)), wanted)
        and not contains(array_to_string(removed, chr(10)), wanted) as has_wanted,
        len(list_filter(added, lambda line: contains(line, given) and contains(replace(line, given, ''), wanted))) > 0 as in_one_line
    from patches
)

select
    episode_id,
    if(has_given and (has_wanted or in_one_line), 1.0, 0.5)::double as weight,
    concat_ws(' and ', if(has_given, 'the call''s arguments', null), if(has_wanted or in_one_line, 'the wanted value', null)) as detail
from found
where
    (has_given and (has_wanted or in_one_line))
    or (has_given and given_length >= 12)
    or (has_wanted and wanted_length >= 12)
