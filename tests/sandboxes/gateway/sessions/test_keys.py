"""Three secrets, each opening its own doors."""

import asyncio
import stat
import sys

import httpx
import pytest

from sandboxes.gateway.client import GatewayClient, GatewayRefused
from sandboxes.gateway.scripted.engine import Scripted
from sandboxes.gateway.sessions.keys import OperatorKey, new_key, operator_key, rotate, same

USER = {"role": "user", "content": "hi"}


def test_the_operator_key_is_made_once_and_only_its_owner_can_read_it(tmp_path):
    path = tmp_path / "keys" / "operator"
    key = operator_key(path)
    assert operator_key(path) == key
    assert len(key) > 40
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(("text", "mode", "remedy"), [("", 0o600, "delete it"), ("k\n", 0o644, "chmod 600")])
def test_an_empty_or_open_operator_key_is_refused_with_the_remedy(tmp_path, text, mode, remedy):
    path = tmp_path / "operator"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(ValueError, match=remedy):
        operator_key(path)


def test_an_empty_key_equals_nothing():
    assert not same("", "")
    assert same("a", "a")
    assert new_key("model") != new_key("model")


async def test_each_key_opens_only_its_own_routes(start):
    async with start() as stack:
        session = await stack.client.start_session("t")
        operator, chat = stack.gateway.operator_key, {"model": stack.model, "messages": [USER]}
        assert (await stack.post("/v1/chat/completions", session.api_key, chat)).status_code == 200
        for key in (session.reward_key, operator, "nonsense", ""):
            assert (await stack.post("/v1/chat/completions", key, chat)).status_code == 401
        assert (await stack.post("/rl/set_reward", session.reward_key, {"reward": 1})).status_code == 200
        for key in (session.api_key, operator, "nonsense", ""):
            assert (await stack.post("/rl/set_reward", key, {"reward": 1})).status_code == 401
        for key in (session.api_key, session.reward_key, "nonsense", ""):
            assert (await stack.post("/rl/start_session", key, {"task_id": "t"})).status_code == 401
            assert (await stack.post("/grant_capacity", key)).status_code == 401
            assert (
                await stack.post("/export_trajectories", key, {"session_id": session.session_id})
            ).status_code == 401
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            path = f"/sessions/{session.session_id}/calls"
            assert (await stack.http.get(path, headers=headers)).status_code == 401


async def test_every_operator_route_refuses_every_other_key(start):
    async with start() as stack:
        session = await stack.client.start_session("t")
        posts = "/rl/seal_session /rl/rotate_key /rl/rotate_operator_key /rl/reset_stop /rl/prune".split()
        gets = [f"/sessions/{session.session_id}{path}" for path in ("", "/calls", "/rewards")]
        for key in (session.api_key, session.reward_key, "nonsense", "", "nonsense" * 200):
            for path in posts:
                assert (await stack.post(path, key, {})).status_code == 401
            for path in gets:
                headers = {"Authorization": f"Bearer {key}"} if key else {}
                assert (await stack.http.get(path, headers=headers)).status_code == 401


async def test_an_expired_key_says_so_and_a_new_one_works(start):
    async with start() as stack:
        session = await stack.client.start_session("t", key_life_s=0.3)
        chat = {"model": stack.model, "messages": [USER]}
        assert (await stack.post("/v1/chat/completions", session.api_key, chat)).status_code == 200
        await asyncio.sleep(0.4)
        refused = await stack.post("/v1/chat/completions", session.api_key, chat)
        assert (refused.status_code, "expired at" in refused.text) == (401, True)
        assert (await stack.post("/rl/set_reward", session.reward_key, {"reward": 1})).status_code == 401
        renewed = await stack.client.rotate_key(session)
        assert (await stack.post("/v1/chat/completions", renewed.api_key, chat)).status_code == 200
        renewed = await stack.client.rotate_key(renewed, kind="reward")
        await stack.client.set_reward(renewed, 1.0)


async def test_a_rotated_session_key_stops_at_once_also_after_a_restart(start):
    chat = {"model": "scripted", "messages": [USER]}
    async with start() as stack:
        old = await stack.client.start_session("t")
        new = await stack.client.rotate_key(old)
        assert (new.reward_key, new.api_key == old.api_key) == (old.reward_key, False)
        refused = await stack.post("/v1/chat/completions", old.api_key, chat)
        assert (refused.status_code, "replaced at" in refused.text) == (401, True)
        assert (await stack.post("/rl/set_reward", new.api_key, {"reward": 1})).status_code == 401
    async with start() as stack:
        assert (await stack.post("/v1/chat/completions", old.api_key, chat)).status_code == 401
        assert (await stack.post("/v1/chat/completions", new.api_key, chat)).status_code == 200
        await stack.client.end_session(new)
        with pytest.raises(GatewayRefused, match=r"409.*ended"):
            await stack.client.rotate_key(new)


async def test_of_rotations_at_the_same_time_one_key_is_left(start):
    async with start() as stack:
        session = await stack.client.start_session("t")
        for kind in ("model", "reward"):
            renewed = await asyncio.gather(*(stack.client.rotate_key(session, kind=kind) for _ in range(6)))
            values = [session, *renewed]
            for path, body in (
                ("/v1/chat/completions", {"model": stack.model, "messages": [USER]}),
                ("/rl/set_reward", {"reward": 1, "scope": "episode"}),
            ):
                if (path == "/rl/set_reward") == (kind == "reward"):
                    keys = [one.reward_key if kind == "reward" else one.api_key for one in values]
                    told = [(await stack.post(path, key, body)).status_code for key in keys]
                    assert sorted(told) == [200] + [401] * 6
        report = await stack.client.report(session.session_id)
        assert sum(key["revoked_at"] is None for key in report["keys"]) == 2


async def test_a_rotated_key_is_held_as_the_first_one_was(start):
    async with start() as stack:
        held = (await stack.client.rotate_key(await stack.client.start_session("one"))).api_key
        start_with = {"task_id": "two", "api_key": held}
        assert (await stack.post("/rl/start_session", stack.gateway.operator_key, start_with)).status_code == 409
        again = await stack.post("/rl/start_session", stack.gateway.operator_key, {"task_id": "one", "api_key": held})
        assert again.status_code == 200
        assert [session.session_id for session in stack.gateway.sessions.open] == [again.json()["session_id"]]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_that_runs_outlives_its_key_and_is_told_again_to_the_new_one(start, stream):
    async with start(["word " * 20], token_delay_s=0.01) as stack:
        session = await stack.client.start_session("t", key_life_s=0.5)
        chat = {"model": stack.model, "messages": [USER], "stream": stream}
        running = asyncio.create_task(stack.post("/v1/chat/completions", session.api_key, chat, Idempotency_Key="k"))
        await asyncio.sleep(0.6)  # expired, and replaced while the call runs
        assert not running.done()
        assert (await stack.post("/v1/chat/completions", session.api_key, chat, Idempotency_Key="k")).status_code == 401
        renewed = await stack.client.rotate_key(session)
        answer = await running
        assert (answer.status_code, answer.text.endswith("data: [DONE]\n\n")) == (200, stream)
        again = await stack.post("/v1/chat/completions", renewed.api_key, chat, Idempotency_Key="k")
        assert again.status_code == 200
        [row] = await stack.rows(session)
        assert (row.status, row.token_status, row.call_id in again.text) == ("ok", "exact", True)


async def test_the_operator_key_is_replaced_whole_and_the_old_one_stops_at_once(start, tmp_path):
    async with start() as stack:
        path, old = tmp_path / "keys" / "operator", stack.gateway.operator_key
        # In the file, beside the running gateway; a client that reads the file goes on.
        async with GatewayClient(stack.url, lambda: operator_key(path)) as going:
            await going.start_session("t")
            new = rotate(path)
            assert (path.read_text().strip(), stat.S_IMODE(path.stat().st_mode)) == (new, 0o600)
            assert not list(path.parent.glob(".*"))  # nothing half-written is left
            assert (await stack.post("/grant_capacity", old)).status_code == 401
            assert (await stack.post("/grant_capacity", new)).status_code == 200
            await asyncio.gather(*(going.start_session("t") for _ in range(5)))
        # By its route.
        async with GatewayClient(stack.url, new) as client:
            newer = await client.rotate_operator_key()
            await client.start_session("t")
        assert (await stack.post("/rl/rotate_operator_key", new)).status_code == 401
        assert path.read_text().strip() == newer != new


def test_a_key_file_that_others_may_read_opens_nothing(tmp_path):
    key = OperatorKey(tmp_path / "operator")
    assert key.value
    (tmp_path / "operator").write_text("known\n")
    (tmp_path / "operator").chmod(0o644)
    with pytest.raises(ValueError, match="chmod 600"):
        assert key.value


async def test_no_key_is_written_down_in_the_clear(tmp_path):
    """A gateway process with everything that keys are used for; its files and what it says are searched for them."""
    async with Scripted(["hello"]).serve() as engine_url:
        arguments = ["--port", "0", "--engine", engine_url, "--home", str(tmp_path), "--model", "scripted"]
        running = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "sandboxes.gateway", *arguments,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        first = await asyncio.wait_for(running.stdout.readline(), 30)
        url = first.decode().split()[1]
        operator = operator_key(tmp_path / "keys" / "operator")
        async with GatewayClient(url, operator) as client, httpx.AsyncClient(base_url=url, verify=False) as http:
            session = await client.start_session("t", key_life_s=60)
            chat = {"model": "scripted", "messages": [USER]}
            for headers in ({"Authorization": f"Bearer {session.api_key}"}, {"x-api-key": session.api_key}):
                assert (await http.post("/v1/chat/completions", json=chat, headers=headers)).status_code == 200
                assert (await http.post("/v1/chat/completions", json={"n": "x"}, headers=headers)).status_code == 400
            wrong = {"Authorization": f"Bearer {session.reward_key}"}
            assert (await http.post("/v1/chat/completions", json=chat, headers=wrong)).status_code == 401
            own = {"task_id": "u", "api_key": "a-key-of-my-own-1234"}
            await http.post("/rl/start_session", json=own, headers={"Authorization": f"Bearer {operator}"})
            renewed = await client.rotate_key(session)
            await client.set_reward(session, 1.0)
            reports = [await client.report(session.session_id), await client.health()]
            newer = await client.rotate_operator_key()
            await client.seal_sessions([session.session_id])
        running.terminate()
        said = first + (await asyncio.wait_for(running.communicate(), 20))[0]
    secrets = [session.api_key, session.reward_key, renewed.api_key, own["api_key"], operator, newer]
    assert all(secret not in repr(session) + repr(renewed) + repr(reports) for secret in secrets)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "journal.db" for path in files)
    for path in files:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
        kept = [newer] if path == tmp_path / "keys" / "operator" else []
        assert [secret for secret in secrets if secret.encode() in path.read_bytes()] == kept, path
    assert [secret for secret in secrets if secret.encode() in said] == []
