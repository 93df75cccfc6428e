"""LiteLLM as a client library. Options: stream, anthropic (the same calls, over Anthropic's Messages)."""

import json

import litellm
from told import (
    API_KEY,
    BASE_URL,
    DESCRIPTION,
    FOLLOW_UP,
    MAX_TOKENS,
    MODEL,
    OPTIONS,
    QUESTION,
    SCHEMA,
    SYSTEM,
    found,
    saw,
    tell,
)

function = {"name": "find", "description": DESCRIPTION, "parameters": SCHEMA}
anthropic = "anthropic" in OPTIONS
wanted = {
    "model": f"{'anthropic' if anthropic else 'openai'}/{MODEL}",
    "api_base": BASE_URL.removesuffix("/v1") if anthropic else BASE_URL,
    "api_key": API_KEY,
    "tools": [{"type": "function", "function": function}],
    "temperature": 0,
    "max_tokens": MAX_TOKENS,
}
messages = [{"role": "system", "content": SYSTEM}]


def answer(**more):
    if "stream" not in OPTIONS:
        return litellm.completion(**wanted, messages=messages, **more).choices[0].message
    chunks = list(litellm.completion(**wanted, messages=messages, stream=True, **more))
    return litellm.stream_chunk_builder(chunks, messages=messages).choices[0].message


# A tool call that must be, one that may be, and none.
for question, choices in ((QUESTION, ("required", "auto")), (FOLLOW_UP, ("none",))):
    messages.append({"role": "user", "content": question})
    for tool_choice in choices:
        message = answer(tool_choice=tool_choice)
        calls = message.tool_calls or []
        saw(message.content, *[(call.function.name, call.function.arguments) for call in calls])
        messages.append(message.model_dump())
        for call in calls:
            observed = found(json.loads(call.function.arguments)["query"])
            messages.append({"role": "tool", "tool_call_id": call.id, "content": observed})
tell()
