"""OpenAI's SDK, Responses: turns by `previous_response_id`. Options: stream, stateless (the items are sent again)."""

import json

from openai import OpenAI
from told import DESCRIPTION, FOLLOW_UP, MAX_TOKENS, MODEL, OPTIONS, QUESTION, SCHEMA, SYSTEM, found, saw, tell

client = OpenAI()
tool = {"type": "function", "name": "find", "description": DESCRIPTION, "parameters": SCHEMA, "strict": False}
wanted = {"model": MODEL, "instructions": SYSTEM, "tools": [tool], "temperature": 0, "max_output_tokens": MAX_TOKENS}
items, new, previous = [], [], None


def answer(**more):
    if "stream" not in OPTIONS:
        return client.responses.create(**wanted, **more)
    with client.responses.stream(**wanted, **more) as stream:
        return stream.get_final_response()


# A tool call that must be, one that may be, and none.
for question, choices in ((QUESTION, ("required", "auto")), (FOLLOW_UP, ("none",))):
    new.append({"role": "user", "content": question})
    for tool_choice in choices:
        items += new
        place = {"input": items} if "stateless" in OPTIONS else {"input": new, "previous_response_id": previous}
        if place.get("previous_response_id", 0) is None:
            del place["previous_response_id"]
        response = answer(tool_choice=tool_choice, **place)
        calls = [item for item in response.output if item.type == "function_call"]
        saw(response.output_text, *[(call.name, call.arguments) for call in calls])
        items += response.output
        previous = response.id
        new = [
            {
                "type": "function_call_output",
                "call_id": call.call_id,
                "output": found(json.loads(call.arguments)["query"]),
            }
            for call in calls
        ]
tell()
