-- grain: one row per problem edition and model that was asked it without tools
-- inputs: episodes of the agent "closed-book", evidence "answer"
select
    episodes.problem_id,
    episodes.problem_edition,
    episodes.model_name,
    count(*) as asked,
    count_if((evidence.value ->> '$.match')::boolean) as known
from episodes
inner join evidence using (episode_id)
where episodes.agent = 'closed-book' and evidence.name = 'answer'
group by all
