-- grain: one row per episode that is left out, with the reason
-- keeps: the first of a problem's episodes that sampled the very same tokens
-- inputs: before, calls
with sampled as (
    select episode_id, hash(list(completion_token_ids order by call_index)) as tokens
    from calls
    semi join (select episode_id from before where reason is null) using (episode_id)
    group by episode_id
)

select episode_id, 'duplicate' as reason
from before
inner join sampled using (episode_id)
where reason is null
qualify row_number() over (partition by problem_id, problem_edition, tokens order by started_at, episode_id) > 1
