"""The chat template that a converted model gets. (The conversion itself needs the 93 MB package: see the docs.)"""

import json

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tasks.training.model import convert

TOOLS = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {}}}}]
CALL = {"id": "1", "type": "function", "function": {"name": "search", "arguments": {"query": "x"}}}
TURNS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Who?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "1", "content": "Ada"},
    {"role": "assistant", "content": "Ada."},
    {"role": "user", "content": "Sure?"},
]


@pytest.fixture(scope="module")
def render():
    # As transformers and the engine set it up.
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    template = environment.from_string(convert.TEMPLATE.read_text())
    return lambda messages, **more: template.render(**{"messages": messages, "tools": TOOLS, **more})


def test_a_longer_conversation_begins_with_the_shorter_one(render):
    for turn in range(1, len(TURNS)):
        assert render(TURNS).startswith(render(TURNS[:turn]))


def test_the_prompt_is_the_conversation_up_to_the_assistants_words(render):
    assert render(TURNS).startswith(render(TURNS[:2], add_generation_prompt=True))


def test_a_call_is_rendered_in_the_form_the_engine_parses(render):
    assert '<tool_call>\n{"name": "search", "arguments": {"query": "x"}}\n</tool_call><|im_end|>' in render(TURNS)
    as_text = [
        *TURNS[:2],
        {**TURNS[2], "tool_calls": [{"function": {"name": "search", "arguments": '{"query": "x"}'}}]},
    ]
    assert render(as_text) == render(TURNS[:3])


def test_tools_are_shown_only_where_there_are_some(render):
    assert '<tools>\n{"type": "function"' in render(TURNS)
    assert "<tools>" not in render(TURNS, tools=None)
