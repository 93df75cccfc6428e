"""Anthropic's SDK: Messages with a tool. Options: stream."""

import os

from anthropic import Anthropic
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

os.environ.pop("ANTHROPIC_AUTH_TOKEN", None)
client = Anthropic(base_url=BASE_URL.removesuffix("/v1"), api_key=API_KEY)
tool = {"name": "find", "description": DESCRIPTION, "input_schema": SCHEMA}
wanted = {"model": MODEL, "system": SYSTEM, "tools": [tool]}
messages, counts = [], []


def answer(**more):
    sampled = {"max_tokens": MAX_TOKENS, "extra_body": {"temperature": 0}, **more}
    if "stream" not in OPTIONS:
        return client.messages.create(**wanted, messages=messages, **sampled)
    with client.messages.stream(**wanted, messages=messages, **sampled) as stream:
        return stream.get_final_message()


# A tool call that must be, one that may be, and none.
for question, choices in ((QUESTION, ("any", "auto")), (FOLLOW_UP, ("none",))):
    messages.append({"role": "user", "content": question})
    for tool_choice in choices:
        counts.append(client.messages.count_tokens(**wanted, messages=messages).input_tokens)
        message = answer(tool_choice={"type": tool_choice})
        uses = [block for block in message.content if block.type == "tool_use"]
        text = "".join(block.text for block in message.content if block.type == "text")
        saw(text, *[(use.name, use.input) for use in uses])
        messages.append({"role": "assistant", "content": message.content})
        if uses:
            results = [
                {"type": "tool_result", "tool_use_id": use.id, "content": found(use.input["query"])} for use in uses
            ]
            messages.append({"role": "user", "content": results})
tell(counted=counts)
