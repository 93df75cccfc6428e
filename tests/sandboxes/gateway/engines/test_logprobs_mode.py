"""Log-probs that the temperature does not change are not those of what was sampled: no policy is served with them."""

import pytest

from sandboxes.gateway.client import GatewayUnavailable
from sandboxes.gateway.engines import engine as engine_module
from sandboxes.gateway.engines import member as member_module
from sandboxes.gateway.engines.engine import Engine
from sandboxes.gateway.scripted.engine import Scripted
from tests.sandboxes.gateway.engines.fleets import fleet

FLAG = "--logprobs-mode processed_logprobs"


@pytest.mark.parametrize("token_routes", [True, False])
async def test_an_engine_with_raw_logprobs_gets_no_policy_call_and_is_told_the_flag(
    tmp_path, token_routes, monkeypatch
):
    monkeypatch.setattr(member_module, "START_LIFE_S", 0.0)
    async with fleet(tmp_path, Scripted(["hello"], processed=False, token_routes=token_routes)) as it:
        [(url, engine)] = it.engines.items()
        with pytest.raises(GatewayUnavailable, match=FLAG):
            await it.client.start_session("t")
        assert await it.states() == {url: "stale"}
        teacher = await it.client.start_session("d", mode="demonstration")
        await it.call(teacher, extra_body={"demonstration": {"role": "assistant", "content": "so"}})
        engine.processed = True
        engine.started += 1  # as one that was started with the flag
        assert (await it.order("proven", url, version=1))[1]["state"] == "serving"
        await it.call(await it.client.start_session("t"))
        assert engine.generated == 1


async def test_sessions_go_to_the_engine_whose_logprobs_are_right(tmp_path):
    raw, right = Scripted(["hello"], processed=False), Scripted(["hello"])
    async with fleet(tmp_path, raw, right) as it:
        for number in range(6):
            await it.call(await it.client.start_session(f"t{number}"))
        assert (raw.generated, right.generated) == (0, 6)


async def test_a_process_is_asked_once(tmp_path, monkeypatch):
    """An engine that swaps weights does not generate, and would be waited for."""
    asked = []
    likely = Engine.likely

    async def counted(self, prompt_ids, temperature):
        asked.append(temperature)
        return await likely(self, prompt_ids, temperature)

    monkeypatch.setattr(Engine, "likely", counted)
    monkeypatch.setattr(engine_module, "FACTS_LIFE_S", 0.0)
    async with fleet(tmp_path, Scripted(["hello"])) as it:
        [member] = it.gateway.engines.members
        for _ in range(3):
            await member.look()
        assert asked == [1.0, 0.5]
