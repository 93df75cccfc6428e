"""mini-swe-agent, unmodified, as a black box inside a box: its own command, no network, the gateway at the box's loopback.

The box's root file system is ours with the agent's packages added, as an image with somebody's own agent would be.
"""

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from sandboxes.backends.base import GATEWAY_URL, BackendUnavailable, BoxSpec, Limits
from sandboxes.backends.bubblewrap import Bubblewrap
from sandboxes.backends.images import root_filesystem
from sandboxes.backends.runner.common import AGENT
from sandboxes.gateway.client import GatewayClient
from sandboxes.gateway.scripted.engine import Scripted
from tasks.stack.settings import ROOT

pytestmark = pytest.mark.bubblewrap

COMMAND = "#!/usr/bin/python3\nfrom minisweagent.run.mini import app\n\napp()\n"
TASK = "add() in calc.py subtracts. Repair it."
BROKEN = "def add(a, b):\n    return a - b\n"
REPAIRED = "def add(a, b):\n    return a + b\n"
TOOL_CALLS = {"model_kwargs": {"temperature": 0}}  # its default: a bash tool
# The tiny model never calls a tool `bash`: what it says is run as it stands, which this agent can be told to do.
TEXT = {
    "model_class": "litellm_textbased",
    "action_regex": "(.+)",
    "model_kwargs": {"temperature": 0, "max_tokens": 24},
}


@pytest.fixture(scope="session")
def backend() -> Bubblewrap:
    """Boxes, or the reason why none can be had here."""
    try:
        found = Bubblewrap()
        found.prepare()
    except BackendUnavailable as reason:
        pytest.skip(str(reason))
    return found


@pytest.fixture(scope="session")
def mini_root(clients_python, backend) -> Path:
    """A root file system with the client packages in it, made once per lock beside our own, whose files it shares."""
    base = root_filesystem()
    lock = hashlib.sha256((ROOT / "deploy/requirements/clients.txt").read_bytes()).hexdigest()[:16]
    path = base.path.with_name(f"{base.path.name}-mini-swe-{lock}")
    if path.is_dir():
        return path
    if not os.access(base.path.parent, os.W_OK):
        pytest.skip(f"{path} is not there and only root can make it: run this test once as root")
    part = Path(tempfile.mkdtemp(prefix="part-", dir=path.parent))
    try:
        _add_mini(base.path, part, clients_python)
        part.rename(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return path


def _add_mini(base: Path, part: Path, python: Path) -> None:
    _copy(base, part)
    packages = part / "usr/local/lib/python3.11/dist-packages"
    packages.mkdir(parents=True, exist_ok=True)
    _copy(python.parent.parent / "lib/python3.11/site-packages", packages)
    command = part / "usr/local/bin/mini"
    command.parent.mkdir(exist_ok=True)
    command.write_text(COMMAND)
    command.chmod(0o755)
    part.chmod(0o755)


def _copy(source: Path, target: Path) -> None:
    """Links to the same bytes where both lie on one disk, else copies."""
    for link in (["--link"], []):
        done = subprocess.run(["cp", "-a", *link, f"{source}/.", target], check=False, timeout=120)
        if done.returncode == 0:
            return
    raise OSError(f"{source} could not be copied to {target}")


@pytest.fixture
def door() -> Iterator[Path]:
    """A folder for the gateway's socket that the boxes' own uid may enter."""
    folder = Path(tempfile.mkdtemp(prefix="door-"))
    folder.chmod(0o755)
    yield folder / "gateway" / "gateway.sock"
    shutil.rmtree(folder)


@asynccontextmanager
async def gateway(engine: str, model: str, home: Path, door: Path, free_ports) -> AsyncIterator[GatewayClient]:
    """The gateway as its own process, with a door for boxes."""
    [port] = free_ports(1)
    command = [sys.executable, "-m", "sandboxes.gateway", "--engine", engine, "--model", model, "--home", str(home)]
    group = ["--socket-group", str(AGENT)] if os.geteuid() == 0 else []
    running = await asyncio.create_subprocess_exec(
        *(*command, "--port", str(port), "--socket", str(door), *group), cwd=ROOT, stdin=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(60):
            while not door.exists():  # noqa: ASYNC240 - a look at a folder in memory
                assert running.returncode is None, "the gateway ended"
                await asyncio.sleep(0.05)
        async with GatewayClient(
            f"http://127.0.0.1:{port}", (home / "keys" / "operator").read_text().strip()
        ) as client:
            yield client
    finally:
        if running.returncode is None:
            running.terminate()
        await running.wait()


async def mini(client, model, backend, root, door, configured, *, step_limit):
    """Run the agent on the task in a box: (recorded rows, its own trajectory, the box's files at the end)."""
    session = await client.start_session("mini-swe")
    configuration = {
        "agent": {"system_template": "You repair code.", "instance_template": "{{task}}", "step_limit": step_limit},
        "environment": {"timeout": 10},
        "model": {"cost_tracking": "ignore_errors", "observation_template": "{{output.output}}", **configured},
    }
    files = {"calc.py": BROKEN.encode(), "mini.yaml": json.dumps(configuration).encode()}
    environment = {
        "OPENAI_BASE_URL": f"{GATEWAY_URL}/v1",
        "OPENAI_API_KEY": session.api_key,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "MSWEA_CONFIGURED": "true",
        "MSWEA_SILENT_STARTUP": "1",
    }
    spec = BoxSpec(files=files, image=str(root), env=environment, gateway=door, limits=Limits(memory_mb=2048))
    box = await backend.start(spec)
    try:
        arguments = [
            "-m",
            f"openai/{model}",
            "-c",
            "mini.yaml",
            "-y",
            "--exit-immediately",
            "-t",
            TASK,
            "-o",
            "told.json",
        ]
        ended = await box.exec(["mini", *arguments], timeout_s=200)
        assert ended.exit_code == 0, (ended.stdout + ended.stderr).decode()[-4000:]
        kept = await box.snapshot()
    finally:
        await box.close()
    rows = await client.calls(session.session_id, episode_id="e", attempt_id="a")
    return session, rows, json.loads(kept["told.json"]), kept


def assert_one_chain(rows):
    """Every call is there token by token and continues the one before it."""
    assert {row.token_status for row in rows} == {"exact"}
    assert [row.fork_reason for row in rows] == ["root"] + [None] * (len(rows) - 1)
    for earlier, later in pairwise(rows):
        known = earlier.prompt_token_ids + earlier.completion_token_ids
        assert later.prompt_token_ids[: len(known)] == known


@pytest.mark.engine
async def test_the_trajectory_of_mini_swe_agent_in_a_box_is_recorded(
    engine_url, backend, mini_root, door, tmp_path, free_ports
):
    async with httpx.AsyncClient(base_url=engine_url, timeout=30) as engine:
        model = (await engine.get("/v1/models")).json()["data"][0]["id"]
    async with gateway(engine_url, model, tmp_path, door, free_ports) as client:
        session, rows, told, _ = await mini(client, model, backend, mini_root, door, TEXT, step_limit=3)
        assert told["info"]["exit_status"] == "LimitsExceeded"
        assert len(rows) == told["info"]["model_stats"]["api_calls"] == 3
        assert_one_chain(rows)
        said = [message["content"] for message in told["messages"] if message["role"] == "assistant"]
        assert [json.loads(row.response_message)["content"] for row in rows] == said
        await client.set_reward(session, 1.0)
        exported = await client.export(session.session_id, discount=1.0)
        assert [row["rewards"] for row in exported.values()] == [1.0, 1.0, 1.0]


async def test_mini_swe_agent_repairs_code_in_a_box_whose_only_way_out_is_the_gateway(
    backend, mini_root, door, tmp_path, free_ports
):
    def bash(command: str):
        function = {"name": "bash", "arguments": json.dumps({"command": command})}
        return {
            "role": "assistant",
            "content": "So.",
            "tool_calls": [{"id": "c", "type": "function", "function": function}],
        }

    way_out = "python3 -c 'import socket; socket.create_connection((\"1.1.1.1\", 80), 3)' 2>&1 | tail -n 1"
    commands = [way_out, "sed -i 's/a - b/a + b/' calc.py && cat calc.py", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"]
    async with (
        Scripted([bash(command) for command in commands]).serve() as engine,
        gateway(engine, "scripted", tmp_path, door, free_ports) as client,
    ):
        _, rows, told, kept = await mini(client, "scripted", backend, mini_root, door, TOOL_CALLS, step_limit=9)
        assert told["info"]["exit_status"] == "Submitted"
        assert kept["calc.py"].decode() == REPAIRED
        assert_one_chain(rows)
        asked = [json.loads(row.response_message)["tool_calls"][0]["function"]["arguments"] for row in rows]
        assert [json.loads(arguments)["command"] for arguments in asked] == commands
        observed = [message["content"] for message in told["messages"] if message["role"] == "tool"]
        assert "unreachable" in observed[0]
        assert observed[1].strip() == REPAIRED.strip()
