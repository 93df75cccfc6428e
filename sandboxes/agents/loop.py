"""The loop all our tool agents share: ask the model, run its tool calls, show what came back."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from lakehouse.records import Status
from sandboxes.agents.base import Ending, Job
from sandboxes.agents.chat import Chat, Completion, ContextTooLong
from sandboxes.problems.base import Listener

UNPARSED = "<tool_call>"  # left in the text where the engine's parser could not read a tool call


@dataclass(frozen=True)
class ToolAgent:
    """An agent that only needs a base URL and a key. The agents of the kinds differ in their limits."""

    name: str
    max_turns: int
    max_tokens: int  # per turn
    follows_plan: bool = False

    async def run(self, job: Job) -> Ending:
        """Turns until the environment is done. A turn without a tool call ends the episode as it stands."""
        sampling = replace(job.sampling, max_tokens=min(job.sampling.max_tokens, self.max_tokens))
        messages = [dict(message) for message in job.environment.messages]
        async with Chat(job.endpoint, job.deadline) as chat:
            for _ in range(min(job.sampling.max_turns, self.max_turns)):
                try:
                    completion = await chat.complete(messages, job.environment.tools, sampling)
                except ContextTooLong as error:
                    return Ending(Status.TRUNCATED, str(error))
                if not completion.tool_calls:
                    ending = without_tool_call(completion)
                    if ending.status is Status.OK and isinstance(job.environment, Listener):
                        job.environment.hear(completion.message["content"])
                    return ending
                messages.append(dict(completion.message))
                done = await run_tool_calls(job, completion, messages)
                if done:
                    return Ending(Status.OK)
        return Ending(Status.TRUNCATED, "the model used up its turns")


async def run_tool_calls(job: Job, completion: Completion, messages: list[dict[str, Any]]) -> bool:
    """Run a turn's tool calls in order and append what came back. Whether the environment is done."""
    for call in completion.tool_calls:
        function: Mapping[str, Any] = call["function"]
        seen = await job.act(function["name"], function.get("arguments") or "{}", completion.id)
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": seen.text})
        if seen.done:
            return True
    return False


def without_tool_call(completion: Completion) -> Ending:
    """What a turn of plain text means: cut off, unreadable, or the model's own end with nothing submitted."""
    if completion.finish_reason == "length":
        return Ending(Status.TRUNCATED, "the model used up its tokens within a turn")
    if UNPARSED in completion.message["content"]:
        return Ending(Status.MODEL_ERROR, "the model wrote a tool call that does not parse")
    return Ending(Status.OK, "the model stopped with plain text")
