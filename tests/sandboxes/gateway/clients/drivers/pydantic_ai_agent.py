"""Pydantic AI. Options: stream, and responses or anthropic instead of chat."""

import asyncio

from pydantic_ai import Agent, UsageLimits, capture_run_messages
from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from told import API_KEY, BASE_URL, FOLLOW_UP, MAX_TOKENS, MODEL, OPTIONS, QUESTION, SYSTEM, found, saw, tell

if "anthropic" in OPTIONS:
    provider = AnthropicProvider(base_url=BASE_URL.removesuffix("/v1"), api_key=API_KEY)
    model = AnthropicModel(MODEL, provider=provider)
else:
    kind = OpenAIResponsesModel if "responses" in OPTIONS else OpenAIChatModel
    model = kind(MODEL, provider=OpenAIProvider(base_url=BASE_URL, api_key=API_KEY))
agent = Agent(model, instructions=SYSTEM, model_settings={"temperature": 0, "max_tokens": MAX_TOKENS})


@agent.tool_plain
def find(query: str) -> str:
    """Look a thing up."""
    return found(query)


async def run(question, history, requests, **settings):
    told = {"message_history": history, "usage_limits": UsageLimits(request_limit=requests), "model_settings": settings}
    with capture_run_messages() as seen:
        try:
            if "stream" in OPTIONS:
                async with agent.run_stream(question, **told) as result:
                    await result.get_output()
            else:
                await agent.run(question, **told)
        except UsageLimitExceeded:  # the tiny model never stops by itself
            pass
    for message in seen[len(history) :]:
        if isinstance(message, ModelResponse):
            saw(message.text, *[(call.tool_name, call.args_as_dict()) for call in message.tool_calls])
    return seen


async def main():
    history = await run(QUESTION, [], 2)
    await run(FOLLOW_UP, history, 1, tool_choice="none")


asyncio.run(main())
tell()
