-- question: Where do two rubrics, or two versions of one, disagree?
-- grain: one row per pair of rubric versions and kind, with an example
with judged as (
    select episode_id, rubric || '@' || rubric_version as rubric, outcome, reward
    from latest_rewards
    where status = 'scored'
)

select
    episodes.problem_kind,
    one.rubric as rubric,
    other.rubric as against,
    count(*) as episodes,
    count_if(one.outcome <> other.outcome) as differ,
    count_if(one.outcome > other.outcome) as kinder,
    count_if(one.outcome < other.outcome) as harsher,
    avg(abs(one.reward - other.reward)) as reward_distance,
    any_value(episodes.episode_id) filter (where one.outcome <> other.outcome) as example
from judged as one
inner join judged as other on one.episode_id = other.episode_id and one.rubric < other.rubric
inner join episodes on one.episode_id = episodes.episode_id
group by all
order by differ desc, episodes desc
