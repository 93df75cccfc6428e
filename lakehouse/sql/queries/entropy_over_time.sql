-- question: Is the policy losing its entropy?
-- grain: one row per version, kind and day
-- variables: kind (of problem; all)
-- entropy_estimate: mean of -log-prob over sampled tokens, in nats: an estimate of the entropy at temperature 1
-- near_certain: share of tokens sampled with a probability above 0.99
select
    episodes.model_name,
    episodes.model_version,
    episodes.problem_kind,
    date_trunc('day', calls.started_at) as day,
    count(*) as calls,
    sum(len(calls.logprobs))::bigint as tokens,
    -sum(list_sum(calls.logprobs)) / sum(len(calls.logprobs)) as entropy_estimate,
    sum(len(list_filter(calls.logprobs, lambda logprob: logprob > -0.01))) / sum(len(calls.logprobs)) as near_certain
from calls
inner join episodes using (episode_id)
where
    calls.logprobs is not null
    and len(calls.logprobs) > 0
    and episodes.problem_kind = coalesce(getvariable('kind'), episodes.problem_kind)
group by all
order by model_name, model_version, problem_kind, day
