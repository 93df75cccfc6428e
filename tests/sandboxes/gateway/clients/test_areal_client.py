"""The online loop of a client written for AReaL, with nothing but the base URL changed."""

import httpx
import pytest

from sandboxes.gateway.app import Gateway
from sandboxes.gateway.client import GatewayClient
from sandboxes.gateway.server.listen import serving
from sandboxes.gateway.settings import Settings

pytestmark = pytest.mark.engine

USER = {"role": "user", "content": "What is the capital of Atlantis?"}
EXPORTED = {"input_ids", "loss_mask", "logprobs", "versions", "turn_ids", "attention_mask", "rewards"}


class ArealClient:
    """AReaL's HTTP shapes, as its proxy's clients send them: paths at the root, an empty object where there is no
    body, null for what is not given."""

    def __init__(self, http: httpx.AsyncClient, admin_key: str) -> None:
        self.http = http
        self.admin_key = admin_key
        self.api_key = ""
        self.session_id = ""

    async def post(self, path, key, body=None):
        answer = await self.http.post(
            path, json={} if body is None else body, headers={"Authorization": f"Bearer {key}"}
        )
        answer.raise_for_status()
        return answer.json()

    async def grant_capacity(self):
        answer = await self.http.post("/grant_capacity", headers={"Authorization": f"Bearer {self.admin_key}"})
        answer.raise_for_status()
        return answer.json()["capacity"]

    async def start_session(self, task_id, api_key=None):
        started = await self.post("/rl/start_session", self.admin_key, {"task_id": task_id, "api_key": api_key})
        self.session_id, self.api_key = started["session_id"], started["api_key"]
        return started

    async def chat(self, messages, **more):
        return await self.post("/chat/completions", self.api_key, {"messages": messages, **more})

    async def set_reward(self, reward, interaction_id=None):
        body = {"interaction_id": interaction_id, "reward": reward}
        return await self.post("/rl/set_reward", self.api_key, body)

    async def end_session(self):
        return await self.post("/rl/end_session", self.api_key)

    async def export(self, session_id, style="individual", discount=1.0):
        body = {"session_id": session_id, "discount": discount, "style": style}
        return (await self.post("/export_trajectories", self.admin_key, body))["interactions"]


@pytest.fixture
async def around(engine_url, tmp_path):
    """AReaL's client, and the model's name, before a gateway where the session's key may give rewards as AReaL's does."""
    async with httpx.AsyncClient(base_url=engine_url, timeout=30) as engine:
        model = (await engine.get("/v1/models")).json()["data"][0]["id"]
    settings = Settings(engine=engine_url, home=tmp_path, model=model, call_deadline_s=120, model_key_rewards=True)
    gateway = Gateway(settings)
    async with (
        serving(gateway.app()) as url,
        GatewayClient(url, gateway.operator_key),
        httpx.AsyncClient(base_url=url, timeout=120) as http,
    ):
        yield ArealClient(http, gateway.operator_key), model


async def two_turns(areal, model):
    wanted = {"model": model, "temperature": 1.0, "seed": 7, "max_tokens": 24}
    first = await areal.chat([USER], **wanted)
    said = first["choices"][0]["message"]
    second = await areal.chat([USER, said, {"role": "user", "content": "Are you sure?"}], **wanted)
    return first["id"], second["id"]


async def test_the_online_loop_of_areal_runs_through(around):
    areal, model = around
    assert await areal.grant_capacity() > 0
    started = await areal.start_session("question-7")
    assert started["session_id"].startswith("question-7-")
    first, second = await two_turns(areal, model)
    assert (await areal.set_reward(1.0))["message"] == "success"  # of the last answered call
    assert await areal.end_session() == {"message": "success", "interaction_count": 2}
    rows = await areal.export(started["session_id"], discount=0.5)
    assert list(rows) == [first, second]
    assert all(set(row) >= EXPORTED for row in rows.values())
    assert [row["rewards"] for row in rows.values()] == [0.5, 1.0]
    for row in rows.values():
        size = len(row["input_ids"])
        assert {len(row[name]) for name in EXPORTED - {"rewards"}} == {size}
        sampled = [n for n in range(size) if row["loss_mask"][n]]
        assert sampled
        assert all(row["logprobs"][n] < 0 <= row["versions"][n] for n in sampled)
        assert all(row["versions"][n] == -1 and row["logprobs"][n] == 0 for n in range(size) if n not in sampled)
    [row] = (await areal.export(started["session_id"], style="concat")).values()
    assert row["input_ids"] == rows[second]["input_ids"]
    assert sum(row["loss_mask"]) == sum(sum(one["loss_mask"]) for one in rows.values())


async def test_a_reward_may_name_its_interaction_and_come_after_the_end(around):
    areal, model = around
    await areal.start_session("t")
    first, second = await two_turns(areal, model)
    await areal.end_session()
    await areal.set_reward(-1.0, interaction_id=first)
    rows = await areal.export(areal.session_id, discount=0.0)
    assert (rows[first]["rewards"], rows[second]["rewards"]) == (-1.0, 0.0)


async def test_starting_again_with_the_same_key_ends_the_old_session_and_opens_a_new_one(around):
    areal, model = around
    old = await areal.start_session("user-1")
    first, second = await two_turns(areal, model)
    await areal.set_reward(1.0)
    new = await areal.start_session("user-1", api_key=old["api_key"])
    assert new["api_key"] == old["api_key"]
    assert new["session_id"] != old["session_id"]
    third, _ = await two_turns(areal, model)  # the agent goes on with the key it has
    await areal.set_reward(0.25)
    await areal.end_session()
    assert list(await areal.export(old["session_id"])) == [first, second]
    assert next(iter(await areal.export(new["session_id"]))) == third


async def test_a_key_that_another_task_holds_is_a_409(around):
    areal, _ = around
    held = (await areal.start_session("one"))["api_key"]
    with pytest.raises(httpx.HTTPStatusError) as refused:
        await areal.start_session("two", api_key=held)
    assert refused.value.response.status_code == 409
