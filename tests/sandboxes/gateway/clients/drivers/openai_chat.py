"""OpenAI's SDK, Chat Completions: a loop as everybody writes it. Options: stream."""

import json

from openai import OpenAI
from told import DESCRIPTION, FOLLOW_UP, MAX_TOKENS, MODEL, OPTIONS, QUESTION, SCHEMA, SYSTEM, found, saw, tell

client = OpenAI()
function = {"name": "find", "description": DESCRIPTION, "parameters": SCHEMA}
wanted = {
    "model": MODEL,
    "tools": [{"type": "function", "function": function}],
    "temperature": 0,
    "max_completion_tokens": MAX_TOKENS,
}
messages = [{"role": "system", "content": SYSTEM}]


def answer(**more):
    if "stream" not in OPTIONS:
        return client.chat.completions.create(**wanted, messages=messages, **more).choices[0].message
    with client.chat.completions.stream(**wanted, messages=messages, **more) as stream:
        return stream.get_final_completion().choices[0].message


# A tool call that must be, one that may be, and none.
for question, choices in ((QUESTION, ("required", "auto")), (FOLLOW_UP, ("none",))):
    messages.append({"role": "user", "content": question})
    for tool_choice in choices:
        message = answer(tool_choice=tool_choice)
        calls = message.tool_calls or []
        saw(message.content, *[(call.function.name, call.function.arguments) for call in calls])
        messages.append(message)
        for call in calls:
            observed = found(json.loads(call.function.arguments)["query"])
            messages.append({"role": "tool", "tool_call_id": call.id, "content": observed})
tell()
