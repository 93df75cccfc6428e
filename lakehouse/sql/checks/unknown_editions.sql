-- grain: one row per edition of a problem that an episode saw and the lake does not hold: there must be none
-- Sessions of outside applications may name no problem of the lake.
select episodes.problem_id, episodes.problem_edition, count(*) as episodes
from episodes
left join bronze.problems as known
    on episodes.problem_id = known.problem_id and episodes.problem_edition is not distinct from known.edition
where known.problem_id is null and episodes.problem_kind <> 'external' and episodes.problem_edition is not null
group by all
