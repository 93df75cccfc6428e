-- grain: one row per episode and detector that saw something in it
-- weight: 0 to 1; severe: 1, which no honest work of the kind gives
-- detail: what was seen, without anything a model, a tool or a problem wrote
with hits as (
    select 'configuration_edits' as detector, episode_id, weight, detail from radar.configuration_edits
    union all
    select 'degenerate_output' as detector, episode_id, weight, detail from radar.degenerate_output
    union all
    select 'forged_report' as detector, episode_id, weight, detail from radar.forged_report
    union all
    select 'git_history' as detector, episode_id, weight, detail from radar.git_history
    union all
    select 'honeytokens' as detector, episode_id, weight, detail from radar.honeytokens
    union all
    select 'idle' as detector, episode_id, weight, detail from radar.idle
    union all
    select 'implausible_duration' as detector, episode_id, weight, detail from radar.implausible_duration
    union all
    select 'injected_text' as detector, episode_id, weight, detail from radar.injected_text
    union all
    select 'network_attempts' as detector, episode_id, weight, detail from radar.network_attempts
    union all
    select 'outside_copies' as detector, episode_id, weight, detail from radar.outside_copies
    union all
    select 'repeated_answers' as detector, episode_id, weight, detail from radar.repeated_answers
    union all
    select 'reward_against_length' as detector, episode_id, weight, detail from radar.reward_against_length
    union all
    select 'runner_internals' as detector, episode_id, weight, detail from radar.runner_internals
    union all
    select 'same_answer' as detector, episode_id, weight, detail from radar.same_answer
    union all
    select 'special_case' as detector, episode_id, weight, detail from radar.special_case
    union all
    select 'stuffed_answer' as detector, episode_id, weight, detail from radar.stuffed_answer
    union all
    select 'tampered_comparisons' as detector, episode_id, weight, detail from radar.tampered_comparisons
    union all
    select 'test_edits' as detector, episode_id, weight, detail from radar.test_edits
    union all
    select 'unsupported_answer' as detector, episode_id, weight, detail from radar.unsupported_answer
)

select episode_id, detector, weight, weight >= 1 as severe, detail
from hits
