import time

import pytest

from lakehouse.records import Status
from sandboxes.agents import AGENTS, Sampling
from sandboxes.agents.base import AgentFailure, Ending, Endpoint, ModelUnavailable
from sandboxes.deadline import Deadline
from sandboxes.problems.base import ToolCall

SEARCH = AGENTS["search"]


async def test_tool_calls_are_run_in_order_and_shown_to_the_model(endpoint, job):
    endpoint.says(("echo", '{"a": 1}'), ("echo", '{"b": 2}'), content="thinking")
    endpoint.says(("stop", "{}"))
    assert await SEARCH.run(job) == Ending(Status.OK)
    assert [(s.tool, s.arguments) for s in job.steps] == [("echo", '{"a": 1}'), ("echo", '{"b": 2}'), ("stop", "{}")]
    assert [s.completion_id for s in job.steps] == ["cc-0", "cc-0", "cc-1"]
    history = endpoint.requests[1]["messages"]
    assert [m["role"] for m in history] == ["system", "user", "assistant", "tool", "tool"]
    assert history[2]["content"] == "thinking"
    assert [m["tool_call_id"] for m in history[3:]] == [c["id"] for c in history[2]["tool_calls"]]
    assert history[3]["content"] == "echo {'a': 1}"


async def test_the_request_holds_the_key_the_tools_and_the_sampling(endpoint, job):
    endpoint.says(("stop", "{}"))
    job.sampling = Sampling(temperature=0.7, top_p=0.9, max_tokens=33, max_turns=2)
    await SEARCH.run(job)
    (sent,) = endpoint.requests
    assert (sent["model"], sent["temperature"], sent["top_p"], sent["max_tokens"]) == ("m", 0.7, 0.9, 33)
    assert sent["tools"] == list(job.environment.tools)
    assert endpoint.headers[0]["authorization"] == "Bearer key"
    assert "demonstration" not in sent


async def test_noise_that_is_seeded_is_another_in_every_turn_and_the_engines_own_without_a_seed(endpoint, job):
    for _ in range(2):
        endpoint.says(("echo", "{}"))
        endpoint.says(("stop", "{}"))
    await SEARCH.run(job)
    job.sampling = Sampling(seed=40)
    await SEARCH.run(job)
    assert [sent.get("seed") for sent in endpoint.requests] == [None, None, 40, 41]


async def test_calls_after_the_end_are_not_run(endpoint, job):
    endpoint.says(("stop", "{}"), ("echo", "{}"))
    await SEARCH.run(job)
    assert [s.tool for s in job.steps] == ["stop"]


@pytest.mark.parametrize(
    "arguments",
    ["{", "[1]", '"x"', "null", '{"a": "\\ud800"}', '{"a": ' + "[" * 9000 + "]" * 9000 + "}"],
    ids=["cut off", "list", "text", "null", "half a surrogate pair", "nested too deep"],
)
async def test_malformed_arguments_are_an_observation(endpoint, job, arguments):
    endpoint.says(("echo", arguments))
    endpoint.says(("stop", "{}"))
    assert (await SEARCH.run(job)).status == Status.OK
    assert [s.observation.is_error for s in job.steps] == [True, False]
    assert job.steps[0].arguments == arguments


async def test_plain_text_ends_the_episode_with_nothing_submitted(endpoint, job):
    endpoint.says(content="I think it is Lima.")
    ending = await SEARCH.run(job)
    assert ending.status == Status.OK and "plain text" in ending.note


async def test_a_tool_call_that_does_not_parse_is_the_models_error(endpoint, job):
    endpoint.says(content='<tool_call>{"name": "echo", ')
    assert (await SEARCH.run(job)).status == Status.MODEL_ERROR


@pytest.mark.parametrize("content", ["half a sent", '<tool_call>{"name": '])
async def test_a_turn_cut_off_is_truncated(endpoint, job, content):
    endpoint.says(content=content, finish="length")
    assert (await SEARCH.run(job)).status == Status.TRUNCATED


async def test_running_out_of_turns_is_truncated(endpoint, job):
    for _ in range(4):
        endpoint.says(("echo", "{}"))
    ending = await SEARCH.run(job)
    assert ending.status == Status.TRUNCATED and "turns" in ending.note
    assert len(job.steps) == len(endpoint.requests) == 4


async def test_a_conversation_too_long_for_the_model_is_truncated(endpoint, job):
    endpoint.says(("echo", "{}"))
    endpoint.fails(400, "This model's maximum context length is 512 tokens.")
    assert (await SEARCH.run(job)).status == Status.TRUNCATED
    assert len(job.steps) == 1


async def test_trouble_that_passes_is_waited_for_and_asked_again_as_the_same_call(endpoint, job):
    endpoint.fails(503, "engine restarts")
    endpoint.fails(429, "busy", **{"Retry-After": "1"})
    endpoint.says(("stop", "{}"))
    start = time.monotonic()
    assert (await SEARCH.run(job)).status == Status.OK
    assert time.monotonic() - start >= 1.2
    assert [h["x-stainless-retry-count"] for h in endpoint.headers] == ["0", "1", "2"]
    assert len({h["idempotency-key"] for h in endpoint.headers}) == 1


async def test_trouble_that_lasts_makes_the_model_unavailable_before_the_deadline(endpoint, job):
    for _ in range(20):
        endpoint.fails(503, "engine is gone")
    job.deadline = Deadline(1, "the episode")
    with pytest.raises(ModelUnavailable, match="engine is gone"):
        await SEARCH.run(job)
    assert job.deadline.left() > 0


async def test_an_endpoint_that_is_not_there_is_named(endpoint, job):
    job.endpoint = Endpoint("http://127.0.0.1:9/v1", "key", "m")
    job.deadline = Deadline(0.5, "the episode")
    with pytest.raises(ModelUnavailable, match=r"127\.0\.0\.1:9"):
        await SEARCH.run(job)


async def test_an_endpoint_that_hangs_is_a_timeout(endpoint, job):
    job.deadline = Deadline(0.4, "the episode")
    with pytest.raises(TimeoutError, match="for the episode were over while waiting for"):
        await SEARCH.run(job)


async def test_a_refused_session_is_not_asked_again(endpoint, job):
    endpoint.fails(409, "session sealed")
    with pytest.raises(ModelUnavailable, match="session sealed"):
        await SEARCH.run(job)
    assert len(endpoint.requests) == 1


async def test_a_request_called_invalid_is_the_agents_failure(endpoint, job):
    endpoint.fails(400, "unknown parameter: tools")
    with pytest.raises(AgentFailure, match="unknown parameter"):
        await SEARCH.run(job)


async def test_the_expert_sends_its_plan_as_demonstrations(endpoint, job):
    job.plan = [ToolCall("echo", {"b": 1, "a": "x"}), ToolCall("stop")]
    endpoint.says(("echo", '{"a":"x","b":1}'))
    endpoint.says(("stop", "{}"))
    assert (await AGENTS["expert"].run(job)).status == Status.OK
    sent = [r["demonstration"]["tool_calls"][0] for r in endpoint.requests]
    assert [c["id"] for c in sent] == ["call_1", "call_2"]
    assert sent[0]["function"] == {"name": "echo", "arguments": '{"b": 1, "a": "x"}'}


async def test_an_expert_that_does_not_end_the_episode_has_failed(endpoint, job):
    job.plan = [ToolCall("echo")]
    endpoint.says(("echo", "{}"))
    with pytest.raises(AgentFailure, match="did not end"):
        await AGENTS["expert"].run(job)


async def test_the_null_and_the_scripted_agent_need_no_model(endpoint, job):
    job.plan = [ToolCall("echo", {"a": 1}), ToolCall("stop")]
    assert (await AGENTS["null"].run(job)).status == Status.OK
    assert job.steps == []
    assert (await AGENTS["scripted"].run(job)).note is None
    assert [s.tool for s in job.steps] == ["echo", "stop"]
    assert endpoint.requests == []
