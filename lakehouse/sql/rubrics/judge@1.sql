-- name: judge
-- version: 1
-- grain: one row per episode
-- inputs: episodes, evidence "judge" of one or more producers
-- parameter pass: 0.5, the mean score from which an episode counts as solved
-- parameter quorum: 1, judges that must have given a score
-- outcome: 1 where the mean score of the judges is at least `pass`, else 0
-- reward: the mean score. A judge that refused, or whose answer was no verdict, is out of the mean and no zero.
with verdicts as (
    select
        episode_id,
        value ->> '$.status' as verdict,
        if(value ->> '$.status' = 'scored', (value ->> '$.score')::double, null) as score
    from evidence
    where name = 'judge'
),

panels as (
    select
        episode_id,
        count(*) as judges,
        count(score) as scores,
        avg(score) as mean,
        max(score) - min(score) as spread,
        count(*) filter (where verdict = 'refused') as refused,
        count(*) filter (where verdict = 'malformed') as malformed
    from verdicts
    group by episode_id
),

judged as (
    select
        episodes.episode_id,
        case
            when episodes.status not in ('ok', 'truncated', 'model_error') then 'not_trainable'
            when coalesce(panels.scores, 0) < $quorum then 'no_evidence'
            else 'scored'
        end as status,
        panels.* exclude (episode_id)
    from episodes
    left join panels using (episode_id)
)

select
    episode_id,
    status,
    if(status = 'scored', if(mean >= $pass, 1.0, 0.0), null)::double as outcome,
    if(status = 'scored', mean, null)::double as reward,
    if(
        judges is null,
        json_object(),
        json_object('judges', judges, 'scores', scores, 'spread', spread, 'refused', refused, 'malformed', malformed)
    )::varchar as components
from judged
