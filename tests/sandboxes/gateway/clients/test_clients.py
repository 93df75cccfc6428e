"""The packages that agents are written with, unmodified: what they were told is what was recorded, token by token.

The variants of one client run side by side, each in a session of its own.
"""

import asyncio

import pytest

pytestmark = pytest.mark.engine


async def assert_all_recorded(gate, python, driver, *variants):
    """Two turns with a tool and one without, in every variant: one chain, rewarded."""
    told = await asyncio.gather(*[gate.drive(python, driver, *variant.split()) for variant in variants])
    for ran in told:
        assert len(ran.rows) == 3
        assert [bool(answer["calls"]) for answer in ran.told["answers"]] == [True, True, False]
        ran.assert_recorded()
        await ran.assert_rewarded(0.75)
    return told


async def test_openai_chat_completions(gate, clients_python):
    await assert_all_recorded(gate, clients_python, "openai_chat", "", "stream")


async def test_openai_responses(gate, clients_python):
    await assert_all_recorded(gate, clients_python, "openai_responses", "", "stream", "stream stateless")


async def test_anthropic_messages(gate, clients_python):
    for ran in await assert_all_recorded(gate, clients_python, "anthropic_messages", "", "stream"):
        assert ran.told["counted"] == [len(row.prompt_token_ids) for row in ran.rows]


async def test_openai_agents_sdk(gate, clients_python):
    await assert_all_recorded(gate, clients_python, "agents_sdk", "stream", "responses", "responses stream")


async def test_langgraph(gate, clients_python):
    await assert_all_recorded(gate, clients_python, "langgraph_agent", "", "stream", "responses stream")


async def test_pydantic_ai(gate, clients_python):
    await assert_all_recorded(gate, clients_python, "pydantic_ai_agent", "stream", "responses", "anthropic stream")


async def test_litellm_as_a_library(gate, clients_python):
    await assert_all_recorded(gate, clients_python, "litellm_library", "stream", "anthropic")


@pytest.mark.optional
async def test_camel(gate, camel_python):
    """CAMEL stops after a tool's result and puts the next question before it: a history of its own, told as such."""
    for ran in await asyncio.gather(*[gate.drive(camel_python, "camel_agent", *some) for some in ((), ("stream",))]):
        assert len(ran.rows) == 6
        assert any(answer["calls"] for answer in ran.told["answers"])
        ran.assert_recorded("compaction")
