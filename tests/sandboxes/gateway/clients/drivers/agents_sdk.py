"""OpenAI's Agents SDK. Options: responses (the SDK's default; without: chat), stream."""

import asyncio

from agents import Agent, ModelSettings, Runner, function_tool, set_default_openai_api, set_tracing_disabled
from agents.exceptions import MaxTurnsExceeded
from told import FOLLOW_UP, MAX_TOKENS, MODEL, OPTIONS, QUESTION, SYSTEM, found, saw, tell

set_tracing_disabled(True)
set_default_openai_api("responses" if "responses" in OPTIONS else "chat_completions")


@function_tool
def find(query: str) -> str:
    """Look a thing up."""
    return found(query)


def settings(tool_choice=None):
    return ModelSettings(temperature=0, max_tokens=MAX_TOKENS, tool_choice=tool_choice)


agent = Agent(name="lookup", instructions=SYSTEM, model=MODEL, tools=[find], model_settings=settings("required"))


async def run(which, items, max_turns):
    if "stream" not in OPTIONS:
        return await Runner.run(which, items, max_turns=max_turns)
    result = Runner.run_streamed(which, items, max_turns=max_turns)
    async for _ in result.stream_events():
        pass
    return result


def note(responses):
    for response in responses:
        calls = [item for item in response.output if item.type == "function_call"]
        texts = [part.text for item in response.output if item.type == "message" for part in item.content]
        saw("".join(texts), *[(call.name, call.arguments) for call in calls])


async def main():
    items = [{"role": "user", "content": QUESTION}]
    try:
        await run(agent, items, 2)
    except MaxTurnsExceeded as error:  # the tiny model never stops by itself
        note(error.run_data.raw_responses)
        items += [item.to_input_item() for item in error.run_data.new_items]
    items.append({"role": "user", "content": FOLLOW_UP})
    result = await run(agent.clone(model_settings=settings("none")), items, 1)
    note(result.raw_responses)


asyncio.run(main())
tell()
