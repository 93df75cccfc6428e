"""The model without tools: what it answers from memory teaches it nothing about searching."""

from lakehouse.records import Status, dumps
from sandboxes.agents.base import Ending, Job
from sandboxes.agents.chat import Chat, ContextTooLong

ANSWER = "answer"  # the tool that takes it


class ClosedBook:
    """Asks the question once, and hands what the model says to the environment as its answer."""

    name = "closed-book"
    follows_plan = False

    async def run(self, job: Job) -> Ending:
        messages = job.prompts.messages(self.name, ())
        async with Chat(job.endpoint, job.deadline) as chat:
            try:
                completion = await chat.complete(messages, (), job.sampling)
            except ContextTooLong as error:
                return Ending(Status.TRUNCATED, str(error))
        said = completion.message["content"].strip()
        await job.act(ANSWER, dumps({"text": said}), completion.id)
        return Ending(Status.OK)
