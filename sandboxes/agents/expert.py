"""The oracle as an agent: each of its tool calls is recorded by the gateway as if a model had made it.

So a demonstration is an ordinary episode, with exact tokens, and not a data format of its own.
"""

import json
from typing import Any

from lakehouse.records import Status
from sandboxes.agents.base import AgentFailure, Ending, Job
from sandboxes.agents.chat import Chat, ContextTooLong
from sandboxes.agents.loop import run_tool_calls
from sandboxes.problems.base import ToolCall


class Expert:
    """Follows the plan through a session in demonstration mode."""

    name = "expert"
    follows_plan = True

    async def run(self, job: Job) -> Ending:
        """The plan, turn by turn. A demonstration that fails or does not end is an AgentFailure."""
        messages = [dict(message) for message in job.environment.messages]
        async with Chat(job.endpoint, job.deadline) as chat:
            for number, call in enumerate(job.plan, start=1):
                turn = assistant_turn(call, number)
                try:
                    completion = await chat.complete(messages, job.environment.tools, job.sampling, turn)
                except ContextTooLong as error:
                    return Ending(Status.TRUNCATED, str(error))
                messages.append(dict(completion.message))
                if await run_tool_calls(job, completion, messages):
                    return Ending(Status.OK)
        raise AgentFailure(f"the expert's {len(job.plan)} tool calls did not end the episode")


def assistant_turn(call: ToolCall, number: int) -> dict[str, Any]:
    """A tool call as the assistant message a model would have written, with an id that repeats."""
    function = {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}],
    }
