"""Several workers on one port: a session is one worker's, whoever receives the request; a dead worker loses nothing answered."""

import asyncio
import signal
import sys
from contextlib import asynccontextmanager

import httpx
import psutil
import pytest

from sandboxes.gateway.client import GatewayClient, GatewayRefused, GatewayUnavailable
from sandboxes.gateway.scripted.engine import Scripted
from sandboxes.gateway.sessions.share import Share, number_of

USER = {"role": "user", "content": "hi"}
BODY = {"model": "scripted", "messages": [USER]}


@pytest.mark.parametrize("of", [1, 2, 5])
def test_numbers_of_different_workers_never_meet(of):
    given = set()
    for share in (Share(index, of) for index in range(of)):
        number = 0
        for _ in range(20):
            before, number = number, share.next_after(number)
            assert before < number <= before + of
            assert share.has(number)
            assert number not in given
            given.add(number)


def test_a_session_id_ends_with_its_number():
    assert number_of("a/b-7-12") == 12
    assert number_of("no number") is None


@asynccontextmanager
async def gateway(home, engine_url, *arguments):
    """A parent process with three workers, or as many as `arguments` say, and a client. All are gone at the end."""
    command = ["--port", "0", "--engine", engine_url, "--home", str(home), "--model", "scripted", "--workers", "3"]
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sandboxes.gateway", *command, *arguments, stdout=asyncio.subprocess.PIPE
    )
    children = []
    try:
        line = (await asyncio.wait_for(parent.stdout.readline(), 30)).decode()
        assert line.startswith("gateway: http"), line
        async with GatewayClient(line.split()[1], (home / "keys" / "operator").read_text().strip()) as client:
            await all_up(home, int(arguments[1]) if arguments[:1] == ("--workers",) else 3)
            children = psutil.Process(parent.pid).children()
            yield parent, client
    finally:
        if parent.returncode is None:
            parent.kill()
        await parent.wait()
        _, left = await asyncio.to_thread(psutil.wait_procs, children, 20)
        assert not left, "a worker outlived its parent"


async def all_up(home, count):
    """Every worker answers on its socket."""
    async with asyncio.timeout(60):
        for index in range(count):
            transport = httpx.AsyncHTTPTransport(uds=str(home / "gateway" / f"worker-{index}.sock"))
            async with httpx.AsyncClient(transport=transport) as http:
                while True:
                    try:
                        if (await http.get("http://worker/health")).status_code == 200:
                            break
                    except httpx.TransportError:
                        await asyncio.sleep(0.1)


async def ask(url, key, path="/v1/chat/completions", **body):
    """On a connection of its own, so that the kernel chooses a worker anew."""
    async with httpx.AsyncClient(timeout=60) as http:
        return await http.post(f"{url}{path}", json=body or BODY, headers={"Authorization": f"Bearer {key}"})


async def test_whoever_receives_a_request_the_worker_with_the_session_answers(tmp_path):
    async with Scripted(["first", "second"]).serve() as engine_url, gateway(tmp_path, engine_url) as (_, client):
        sessions = [await client.start_session("t") for _ in range(6)]
        numbers = [number_of(session.session_id) for session in sessions]
        assert len(set(numbers)) == 6
        assert {number % 3 for number in numbers} == {0, 1, 2}  # started in turn
        for session in sessions:
            answers = [await ask(client.base_url, session.api_key) for _ in range(4)]
            assert {answer.status_code for answer in answers} == {200}
            assert (await ask(client.base_url, session.reward_key, "/rl/set_reward", reward=1.0)).status_code == 200
            stream = await ask(client.base_url, session.api_key, **BODY, stream=True)
            assert stream.text.endswith("data: [DONE]\n\n")
        for session in sessions:
            rows = await client.calls(session.session_id, episode_id="e", attempt_id="a")
            assert [row.call_index for row in rows] == list(range(5))
            assert {row.token_status for row in rows} == {"exact"}
        refused = await ask(client.base_url, "no-such-key")
        assert refused.status_code == 401
        metrics = (tmp_path / "keys" / "metrics").read_text().strip()
        async with httpx.AsyncClient() as http:
            told = await http.get(f"{client.base_url}/metrics", headers={"Authorization": f"Bearer {metrics}"})
        assert 'recorded_calls_total{token_status="exact"} 30.0' in told.text  # all workers together


async def test_a_key_of_ones_own_stays_with_one_worker_and_is_refreshed_there(tmp_path):
    async with Scripted(["x"]).serve() as engine_url, gateway(tmp_path, engine_url) as (_, client):
        operator = (tmp_path / "keys" / "operator").read_text().strip()
        start = {"task_id": "t", "api_key": "a-key-of-ones-own"}
        first, second = [
            (await ask(client.base_url, operator, "/rl/start_session", **start)).json()["session_id"] for _ in range(2)
        ]
        assert number_of(first) % 3 == number_of(second) % 3
        assert (await client.report(first))["state"] == "ended"
        other = await ask(client.base_url, operator, "/rl/start_session", **{**start, "task_id": "other"})
        assert other.status_code == 409


async def test_a_worker_that_is_killed_is_started_again_and_loses_no_answered_call(tmp_path):
    async with Scripted(["first", "second"]).serve() as engine_url, gateway(tmp_path, engine_url) as (parent, client):
        sessions = [await client.start_session("t") for _ in range(3)]
        for session in sessions:
            assert (await ask(client.base_url, session.api_key)).status_code == 200
        for worker in psutil.Process(parent.pid).children():
            worker.kill()
        async with asyncio.timeout(60):
            for session in sessions:
                while True:  # meanwhile: refused connections, cut ones, and 503 from a worker that is up before another
                    try:
                        answer = await ask(client.base_url, session.api_key)
                    except httpx.TransportError:
                        await asyncio.sleep(0.1)
                        continue
                    if answer.status_code == 200:
                        break
                    assert (answer.status_code, answer.headers["x-should-retry"]) == (503, "true")
        for session in sessions:
            rows = await client.calls(session.session_id, episode_id="e", attempt_id="a")
            assert [(row.status, row.token_status) for row in rows] == [("ok", "exact")] * 2
        later = await client.start_session("t")
        assert later.session_id not in {session.session_id for session in sessions}


async def test_keys_are_replaced_at_all_workers_while_calls_run(tmp_path):
    engine = Scripted(["x" * 60], token_delay_s=0.02)
    async with engine.serve() as engine_url, gateway(tmp_path, engine_url) as (_, client):
        session = await client.start_session("t")
        reward = {"reward": 1.0, "scope": "episode"}
        calls = [asyncio.create_task(ask(client.base_url, session.api_key, **BODY, seed=n)) for n in range(4)]
        async with asyncio.timeout(30):
            while len(engine.asked) < 4:  # noqa: ASYNC110 - another process sends them
                await asyncio.sleep(0.02)
        new = await client.rotate_key(await client.rotate_key(session), kind="reward")
        for _ in range(4):  # whichever worker is asked
            assert (await ask(client.base_url, session.api_key)).status_code == 401
            assert (await ask(client.base_url, session.reward_key, "/rl/set_reward", **reward)).status_code == 401
            assert (await ask(client.base_url, new.reward_key, "/rl/set_reward", **reward)).status_code == 200
        path = tmp_path / "keys" / "operator"
        old = path.read_text().strip()
        newer = (await ask(client.base_url, old, "/rl/rotate_operator_key")).json()["operator_key"]
        told = [(await ask(client.base_url, key, "/grant_capacity")).status_code for key in (old, newer) * 4]
        assert told == [401, 200] * 4
        path.rename(path.with_name("away"))  # then nobody is the operator, and that is no agent's business
        told = [(await ask(client.base_url, newer, "/grant_capacity")).status_code for _ in range(3)]
        assert told == [401] * 3
        calls += [asyncio.create_task(ask(client.base_url, new.api_key, **BODY, seed=n)) for n in range(4, 8)]
        assert [answer.status_code for answer in await asyncio.gather(*calls)] == [200] * 8


async def test_a_client_that_goes_away_cancels_a_call_that_another_worker_runs(tmp_path):
    engine = Scripted(["x" * 2000], token_delay_s=0.02)
    async with engine.serve() as engine_url, gateway(tmp_path, engine_url) as (_, client):
        session = await client.start_session("t")
        calls = [asyncio.create_task(ask(client.base_url, session.api_key, **BODY, seed=n)) for n in range(6)]
        async with asyncio.timeout(30):
            while len(engine.asked) < 6:  # noqa: ASYNC110 - another process sends them
                await asyncio.sleep(0.05)
        for call in calls:
            call.cancel()
        async with asyncio.timeout(20):
            while engine.aborted < 6:  # noqa: ASYNC110 - another process counts
                await asyncio.sleep(0.05)
        rows = await client.calls(session.session_id, episode_id="e", attempt_id="a")
        assert {row.status for row in rows} == {"cancelled"}


async def test_one_signal_to_the_parent_drains_all_and_a_parent_that_dies_takes_its_workers_along(tmp_path, dispatched):
    async with Scripted(["x" * 100], token_delay_s=0.02).serve() as engine_url:
        async with gateway(tmp_path, engine_url) as (parent, client):
            session = await client.start_session("t")
            calls = [asyncio.create_task(ask(client.base_url, session.api_key, **BODY, seed=n)) for n in range(4)]
            await dispatched(tmp_path, 4)
            parent.send_signal(signal.SIGTERM)
            assert {answer.status_code for answer in await asyncio.gather(*calls)} == {200}
            assert await asyncio.wait_for(parent.wait(), 30) == 0
        async with gateway(tmp_path, engine_url) as (parent, _):
            parent.kill()  # `gateway` checks that nobody is left


async def test_a_port_that_another_gateways_workers_share_is_taken(tmp_path):
    async with Scripted(["x"]).serve() as engine_url, gateway(tmp_path, engine_url) as (_, client):
        arguments = ["--port", client.base_url.rpartition(":")[2], "--engine", engine_url, "--model", "m"]
        for workers in ("1", "2"):
            other = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "sandboxes.gateway", *arguments, "--workers", workers,
                "--home", str(tmp_path / "other"), stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            _, said = await asyncio.wait_for(other.communicate(), 30)
            assert (other.returncode, b"--port" in said) == (1, True)


async def test_capacity_and_tickets_are_those_of_all_workers_together(tmp_path):
    limit = ("--workers", "2", "--max-sessions", "4")
    async with Scripted(["x"]).serve() as engine_url, gateway(tmp_path, engine_url, *limit) as (parent, client):
        operator = (tmp_path / "keys" / "operator").read_text().strip()

        async def capacity():
            """As several connections are told, so as both workers tell it."""
            answer = await ask(client.base_url, operator, "/grant_capacity")
            return answer.json()["capacity"]

        first = await client.start_session("t")
        for granted in range(1, 5):
            assert await capacity() == 3 + granted
        opened = [first, *[await client.start_session("t") for _ in range(7)]]  # three places, then four tickets
        assert {number_of(session.session_id) % 2 for session in opened} == {0, 1}
        with pytest.raises(GatewayRefused, match="429: 8 sessions are open"):
            await client.start_session("t")
        for session in opened[:5]:
            await client.end_session(session)
        assert await capacity() == 2  # three open, one place, one ticket
        for worker in psutil.Process(parent.pid).children():
            worker.kill()
        await asyncio.sleep(1)
        await all_up(tmp_path, 2)
        assert await capacity() == 3
        for _ in range(3):
            await client.start_session("t")
        with pytest.raises(GatewayRefused, match="429: 6 sessions are open"):
            await client.start_session("t")


async def test_sessions_that_either_of_two_workers_lost_stop_both_until_one_of_them_is_reset(tmp_path):
    engine = Scripted(["x"])
    stop = ("--workers", "2", "--max-mask-fraction", "0.1")  # of 20: the third
    async with engine.serve() as engine_url, gateway(tmp_path, engine_url, *stop) as (_, client):

        async def lose_one():
            engine.failures.append("nan")
            session = await client.start_session("t")
            await ask(client.base_url, session.api_key)
            await client.end_session(session)
            return number_of(session.session_id) % 2

        assert {await lose_one() for _ in range(2)} == {0, 1}  # at each worker one
        await lose_one()
        for _ in range(2):
            with pytest.raises(GatewayUnavailable, match="3 of the last 3 sessions"):
                await client.start_session("t")
        assert "3 of the last 3" in await client.reset_stop()
        for _ in range(2):
            await client.end_session(await client.start_session("t"))
