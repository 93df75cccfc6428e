"""Programs as users write them, run in the clients' own environments against a gateway before the real engine."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from lakehouse.records import Call
from sandboxes.gateway.app import Gateway
from sandboxes.gateway.client import GatewayClient, Session
from sandboxes.gateway.server.listen import serving
from sandboxes.gateway.settings import Settings
from tasks.stack.settings import ROOT

DRIVERS = Path(__file__).parent / "drivers"
PROGRAM_S = 120.0  # for one program, imports included; they are what takes long


@pytest.fixture(scope="session")
def clients_python() -> Path:
    """The interpreter that has the client packages."""
    return _python(".venv-clients", "make install-clients")


@pytest.fixture(scope="session")
def camel_python() -> Path:
    """The interpreter that has CAMEL."""
    return _python(".venv-camel", "make install-camel")


def _python(folder: str, remedy: str) -> Path:
    python = ROOT / folder / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no client environment at {python}: run `{remedy}`")
    return python


@dataclass(frozen=True)
class Ran:
    """A program that has ended well, and what the gateway has recorded of it."""

    told: dict[str, Any]  # its last line of output
    session: Session
    rows: list[Call]
    client: GatewayClient

    def assert_recorded(self, *forks: str) -> None:
        """Every call is there, token by token, says what the client was told, and continues the one before it, or
        starts a segment for one of the given reasons."""
        assert [_said(row) for row in self.rows] == self.told["answers"]
        assert {row.token_status for row in self.rows} == {"exact"}
        for row in self.rows:
            assert len(row.completion_token_ids) == len(row.logprobs) == len(row.weight_versions) > 0
        assert self.rows[0].fork_reason == "root"
        for earlier, later in pairwise(self.rows):
            known = earlier.prompt_token_ids + earlier.completion_token_ids
            if later.fork_reason is None:
                assert later.prompt_token_ids[: len(known)] == known
                assert (later.parent_call_id, later.segment) == (earlier.call_id, earlier.segment)
            else:
                assert later.fork_reason in forks

    async def assert_rewarded(self, reward: float) -> None:
        """The reward given now stands on the last call, and reaches the earlier ones of its branch with a discount."""
        await self.client.set_reward(self.session, reward)
        await self.client.end_session(self.session)
        exported = await self.client.export(self.session.session_id, discount=0.5)
        assert list(exported) == [row.call_id for row in self.rows]
        expected = [0.5**steps * reward for steps in reversed(range(len(self.rows)))]
        assert [row["rewards"] for row in exported.values()] == pytest.approx(expected)


@dataclass(frozen=True)
class Gate:
    """A gateway and its client, and a way to run programs against it."""

    client: GatewayClient
    model: str
    home: Path

    async def drive(self, python: Path, driver: str, *options: str) -> Ran:
        """Run a driver in a session of its own, to its end."""
        session = await self.client.start_session("-".join((driver, *options)))
        told = await self.run([python, DRIVERS / f"{driver}.py", *options], session)
        return Ran(json.loads(told.splitlines()[-1]), session, await self.rows(session), self.client)

    async def run(self, command: Sequence[str | Path], session: Session, **more: str) -> str:
        """What a program prints that knows the gateway by OPENAI_BASE_URL and a session's key; it must end well."""
        program = await asyncio.create_subprocess_exec(
            *map(str, command),
            env=self.environment(session) | more,
            cwd=self.home,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(PROGRAM_S):
                out, err = await program.communicate()
        finally:
            if program.returncode is None:
                program.kill()
        assert program.returncode == 0, err.decode()[-4000:] or out.decode()[-4000:]
        return out.decode()

    def environment(self, session: Session) -> dict[str, str]:
        """All that a program of a user is told."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "OPENAI_BASE_URL": self.client.openai_base_url,
            "OPENAI_API_KEY": session.api_key,
            "MODEL": self.model,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it asks the network for prices when it is imported
        }

    async def rows(self, session: Session) -> list[Call]:
        return await self.client.calls(session.session_id, episode_id="e", attempt_id="a")


@pytest.fixture
def gate_of() -> type[Gate]:
    """To run programs against a gateway of the test's own."""
    return Gate


@pytest.fixture
async def gate(engine_url, tmp_path) -> AsyncIterator[Gate]:
    """A gateway before the real engine."""
    async with httpx.AsyncClient(base_url=engine_url, timeout=30) as engine:
        model = (await engine.get("/v1/models")).json()["data"][0]["id"]
    gateway = Gateway(Settings(engine=engine_url, home=tmp_path / "gateway", model=model, call_deadline_s=120))
    async with serving(gateway.app()) as url, GatewayClient(url, gateway.operator_key) as client:
        yield Gate(client, model, tmp_path)


def _said(row: Call) -> dict[str, Any]:
    """A recorded answer in the drivers' form."""
    message = json.loads(row.response_message)
    functions = [call["function"] for call in message.get("tool_calls") or []]
    return {
        "text": message.get("content") or "",
        "calls": [[function["name"], json.loads(function["arguments"])] for function in functions],
    }
