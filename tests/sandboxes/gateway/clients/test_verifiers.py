"""docs/examples/verifiers_env.py with the real package, where an environment has it: gates, then an episode with its reward."""

import asyncio
import json
import os

import pytest

from sandboxes.external import receive
from sandboxes.gateway.app import Gateway
from sandboxes.gateway.client import GatewayClient
from sandboxes.gateway.scripted.engine import Scripted
from sandboxes.gateway.server.listen import serving
from sandboxes.gateway.settings import Settings
from sandboxes.problems.foreign import Terms
from sandboxes.problems.imports import read
from tasks.stack.settings import ROOT

PROGRAM = ROOT / "docs" / "examples" / "verifiers_env.py"
PYTHON = ROOT / ".venv-verifiers" / "bin" / "python"
TASKSET = """
import verifiers.v1 as vf


class Data(vf.TaskData):
    answer: str


class Sum(vf.Task[Data]):
    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        return float(f"\\\\boxed{{{self.data.answer}}}" in (trace.last_reply or ""))


class Sums(vf.Taskset[Sum]):
    def load(self):
        yield Sum(Data(prompt="How much is 20 + 22?", answer="42"), self.config.task)


__all__ = ["Sums"]
"""


async def run(python, *arguments, **environment):
    process = await asyncio.create_subprocess_exec(
        python, PROGRAM, *arguments, env=os.environ | environment,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    told, complaint = await asyncio.wait_for(process.communicate(), 280)
    return process.returncode, told.decode(), complaint.decode()


async def test_without_the_package_it_says_what_to_install(tmp_path):
    empty = tmp_path / "verifiers"
    empty.mkdir()
    (empty / "__init__.py").write_text("raise ImportError('not here')\n")
    status, _, complaint = await run("python3", "sums", PYTHONPATH=str(tmp_path))
    assert status == 1 and "pip install 'verifiers" in complaint


@pytest.mark.optional
async def test_a_tasksets_gates_and_an_episode_with_its_own_reward(tmp_path):
    if not PYTHON.exists():
        pytest.skip(f"no {PYTHON.parent.parent.name} with the package verifiers and uv, which starts its programs")
    (tmp_path / "sums.py").write_text(TASKSET)
    path = f"{PYTHON.parent}:{ROOT / '.venv-tools' / 'bin'}:{os.environ['PATH']}"
    places = {"PYTHONPATH": str(tmp_path), "PATH": path, "LAKELOOP_HOME": str(tmp_path), "MODEL": "scripted"}
    rows = tmp_path / "problems.jsonl"
    status, _, complaint = await run(PYTHON, "sums", "--problems", str(rows), **places)
    assert status == 0, complaint
    terms = Terms(name="sums", split="train", licence="MIT", allowed_uses=("training",))
    [problem] = read("external", rows, terms)
    assert problem.oracle_passed and problem.null_failed
    async with Scripted(["It is \\boxed{42}."]).serve() as engine:
        gateway = Gateway(Settings(engine=engine, home=tmp_path, model="scripted"))
        async with serving(gateway.app()) as url, GatewayClient(url, gateway.operator_key) as client:
            status, told, complaint = await run(PYTHON, "sums", GATEWAY_URL=url, **places)
            assert status == 0, complaint
            [session] = await client.closed_sessions()
            result = await receive(client, session, problem, model_name="scripted")
    assert result.episode.status == "ok" and result.episode.problem_id == problem.problem_id, told
    [given] = json.loads(result.evidence[0].value)["rows"]
    assert (given["reward"], given["labeller"], json.loads(given["reason"])) == (1.0, "verifiers", {"right": 1.0})
    assert len(result.calls) == 1 and result.calls[0].token_status == "exact"
