"""A model as a judge: malformed, refused and a true zero are three things, and a failure is none of them."""

import asyncio
import re

import pytest

from tasks.judges import EndpointJudge, JudgeFailed, JudgeMisconfigured, Prompt

from .conftest import told, verdict

PROMPT = Prompt("Judge: $answer")


@pytest.fixture
def asked(endpoint, played):
    """Asks a judge of an endpoint with these replies; the verdict and the endpoint."""

    async def asked(*replies, **how):
        async with endpoint(*replies) as scripted, EndpointJudge(scripted.url, "m", PROMPT, **how) as judge:
            return await judge.ask(played), scripted

    return asked


@pytest.mark.parametrize(
    ("reply", "status", "score", "reason"),
    [
        (verdict(0.75), "scored", 0.75, "seen"),
        (verdict(1), "scored", 1.0, "seen"),
        (verdict(0), "scored", 0.0, "seen"),
        (told('```json\n{"score": 0, "reason": "none"}\n```'), "scored", 0.0, "none"),
        (verdict(None, "cannot be told"), "refused", None, "cannot be told"),
        (told(None, message={"refusal": "I will not"}), "refused", None, "I will not"),
        (told("", finish_reason="content_filter"), "refused", None, "content filter"),
        (told("Looks fine to me: 1"), "malformed", None, "Invalid JSON"),
        (told(""), "malformed", None, "Invalid JSON"),
        (verdict(7), "malformed", None, "score: Input should be less than or equal to 1"),
        (told('{"score": NaN, "reason": ""}'), "malformed", None, "score"),
        (told('{"score": true, "reason": ""}'), "malformed", None, "score"),
        (told('{"score": "0", "reason": ""}'), "malformed", None, "score"),
        (told('{"reason": "no score"}'), "malformed", None, "score: Field required"),
        (told("[0]"), "malformed", None, "the answer"),
        (told('{"score": 0.', finish_reason="length"), "malformed", None, "the tokens ran out"),
    ],
)
async def test_what_the_model_says_is_told_apart(asked, reply, status, score, reason):
    found, scripted = await asked(reply)
    assert (found.status, found.value["status"], found.value["score"]) == (status, status, score)
    assert reason in found.value["reason"]
    assert found.value["attempts"] == len(scripted.requests) == (2 if status == "malformed" else 1)


async def test_an_answer_that_is_no_verdict_is_told_what_is_wrong_and_asked_again(asked):
    found, scripted = await asked(told("fine"), verdict(0.5))
    assert (found.status, found.value["score"], found.value["attempts"]) == ("scored", 0.5, 2)
    again = scripted.requests[1]["messages"]
    assert [message["role"] for message in again] == ["user", "assistant", "user"]
    assert again[1]["content"] == "fine" and "Invalid JSON" in again[2]["content"]


async def test_what_passes_by_itself_is_waited_for(asked):
    found, scripted = await asked(503, 429, verdict(0))
    assert (found.status, found.value["attempts"], len(scripted.requests)) == ("scored", 1, 3)


@pytest.mark.parametrize("replies", [(500,), ("not JSON",), ({"object": "list"},), ([],), ({"choices": [3]},), (400,)])
async def test_an_endpoint_that_gives_no_answer_is_a_failure_and_no_verdict(asked, replies):
    with pytest.raises(JudgeFailed, match=r"http://127.0.0.1:\d+/v1"):
        await asked(*replies, deadline_s=1)


async def test_a_judge_that_hangs_ends_at_its_deadline(endpoint, played):
    async def hang(request):
        await asyncio.sleep(30)

    async with endpoint(hang) as scripted, EndpointJudge(scripted.url, "m", PROMPT, deadline_s=0.5) as judge:
        with pytest.raises(JudgeFailed, match=r"within 0\.5 s"):
            async with asyncio.timeout(10):
                await judge.ask(played)


async def test_nobody_there_is_a_failure(played, free_ports):
    async with EndpointJudge(f"http://127.0.0.1:{free_ports(1)[0]}/v1", "m", PROMPT, deadline_s=0.5) as judge:
        with pytest.raises(JudgeFailed, match="ConnectError"):
            await judge.ask(played)


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_a_wrong_key_or_model_ends_it_at_once(asked, status):
    with pytest.raises(JudgeMisconfigured, match="the model's name and the key"):
        await asked(status)


async def test_what_is_asked_has_the_schema_the_key_and_the_episode(asked):
    _, scripted = await asked(verdict(1), key="k")
    (request,) = scripted.requests
    assert request["authorization"] == "Bearer k" and request["model"] == "m" and request["temperature"] == 0
    assert request["response_format"]["json_schema"]["schema"]["required"] == ["reason", "score"]
    assert "Jane Austen" in request["messages"][0]["content"]
    _, scripted = await asked(verdict(1), structured=False)
    assert "response_format" not in scripted.requests[0]


def producer(prompt=PROMPT, model="m", **how):
    return EndpointJudge("https://x/v1", model, prompt, **how).producer


def test_another_model_version_prompt_or_setting_is_another_judge():
    others = [
        producer(), producer(model="n"), producer(version=3), producer(Prompt("Now judge: $answer")),
        producer(Prompt("Judge: $answer", 500)), producer(max_tokens=9), producer(structured=False), producer(attempts=3),
    ]  # fmt: skip
    assert len(set(others)) == len(others)
    assert re.fullmatch(r"llm m@3 [0-9a-f]{12}", producer(version=3))
    assert producer(key="k", deadline_s=9) == producer()


@pytest.mark.parametrize("url", ["ftp://x/v1", "x/v1"])
def test_an_endpoint_is_a_url(url):
    with pytest.raises(JudgeMisconfigured, match="http"):
        EndpointJudge(url, "m", PROMPT)


def test_a_key_goes_to_another_machine_encrypted_or_not_at_all():
    with pytest.raises(JudgeMisconfigured, match="https"):
        EndpointJudge("http://example.org/v1", "m", PROMPT, key="k")


async def test_a_real_engine_judges(engine_url, played):
    """What a tiny model says is anything; that it is one of the three, with its tokens counted, is the law."""
    from tasks.serving.engine import Engine

    with Engine(engine_url) as engine:
        (model, *_) = engine.models()
    async with EndpointJudge(f"{engine_url}/v1", model, PROMPT, max_tokens=48, attempts=1) as judge:
        found = await judge.ask(played)
    assert found.status in ("scored", "refused", "malformed")
    assert found.value["usage"]["completion_tokens"] > 0
