-- grain: one row per episode that is left out, with the reason
-- keeps: episodes within limits of length
-- settings: max_sampled_tokens=1024, max_calls=32
-- inputs: before
select
    episode_id,
    case
        when n_completion_tokens > getvariable('max_sampled_tokens') then 'many_tokens'
        when n_calls > getvariable('max_calls') then 'many_calls'
    end as reason
from before
where reason is null
