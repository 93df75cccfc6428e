-- grain: one row per episode and rule that asks for a person's eyes; the highest priority first within a queue
-- queue: disagreement (of two witnesses), detector (the radar saw something), high_advantage (at least one standard
--     deviation above its group: what training makes more of), random (every scored episode, in an order that nobody chose)
-- reviewers: who has given a verdict
with witnesses as (
    select
        episode_id,
        'disagreement' as queue,
        max(spread) as priority,
        string_agg(between || ': ' || detail, '; ' order by between, detail) as why,
        bool_or(between = 'reviewers') as open
    from disagreements
    group by episode_id
),

seen as (
    select
        episode_id,
        'detector' as queue,
        sum(weight) as priority,
        string_agg(detector || ': ' || detail, '; ' order by weight desc, detector) as why,
        false as open
    from radar
    group by episode_id
    having max(weight) >= 0.5
),

newest as (
    select *
    from group_statistics
    where reason is null
    qualify rubric_version = max(rubric_version) over (partition by rubric)
),

amplified as (
    select
        episode_id,
        'high_advantage' as queue,
        max(advantage) as priority,
        max_by(
            printf('advantage %.2f by %s@%d: reward %.2f, its group has %.2f on average', advantage, rubric, rubric_version, reward, group_mean),
            advantage
        ) as why,
        false as open
    from newest
    where advantage >= 1
    group by episode_id
),

anybody as (
    select distinct
        episode_id,
        'random' as queue,
        ('0x' || substr(md5(episode_id), 1, 8))::ubigint / 4294967296 as priority,
        'a random sample' as why,
        false as open
    from latest_rewards
    where status = 'scored'
),

queued as (
    from witnesses
    union all by name
    from seen
    union all by name
    from amplified
    union all by name
    from anybody
),

verdicts as (
    select episode_id, list(reviewer order by reviewer) as reviewers
    from latest_reviews
    group by episode_id
)

select
    queued.episode_id,
    queued.queue,
    queued.priority::double as priority,
    queued.why,
    queued.open,
    coalesce(verdicts.reviewers, []) as reviewers,
    episodes.run_id,
    episodes.problem_id,
    episodes.problem_kind,
    episodes.model_name,
    episodes.model_version
from queued
inner join episodes using (episode_id)
left join verdicts using (episode_id)
