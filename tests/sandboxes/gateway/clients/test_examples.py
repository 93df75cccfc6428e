"""docs/examples: each runs as it stands, its reward is of what happened, and all of it is recorded."""

import asyncio
import json
import os
import shutil
import sys
import tomllib

import pytest

from sandboxes.gateway.app import Gateway
from sandboxes.gateway.client import GatewayClient, Session
from sandboxes.gateway.scripted.engine import Scripted
from sandboxes.gateway.server.listen import serving
from sandboxes.gateway.settings import Settings
from tasks.stack.settings import ROOT

EXAMPLES = ROOT / "docs" / "examples"


def call(tool, **arguments):
    function = {"name": tool, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "type": "function", "function": function}]}


REPAIR = "sed -i 's/a - b/a + b/' calc.py"
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
GOOD = {
    "customer_service": [call("find_order", order="4711"), call("refund", order="4711"), "Your money is on its way."],
    "coding_agent": [call("bash", command=REPAIR), call("bash", command=SUBMIT)],
    "search_agent": [call("search", query="Capital of Atlantis."), call("open", title="Atlantis"), "It is Poseidonis."],
}
BAD = {  # where a run costs little
    "customer_service": [call("refund", order="4712"), "Done."],
    "search_agent": ["I do not know."],
}


async def run_example(name, replies, gate_of, python, home):
    """(rows, rewards, what it printed)."""
    async with Scripted(replies).serve() as engine:
        gateway = Gateway(Settings(engine=engine, home=home, model="scripted"))
        async with serving(gateway.app()) as url, GatewayClient(url, gateway.operator_key) as client:
            gate = gate_of(client, "scripted", home)
            nobody = Session("", "none", "none")  # an example starts its own session
            places = {"GATEWAY_URL": url, "LAKELOOP_HOME": str(home)}
            told = await gate.run([python, EXAMPLES / f"{name}.py"], nobody, **places)
            session_id = told.splitlines()[-1].partition(":")[0]
            rows = await client.calls(session_id, episode_id="e", attempt_id="a")
            exported = await client.export(session_id, discount=1.0)
            return rows, [row["rewards"] for row in exported.values()], told


@pytest.mark.parametrize("name", GOOD)
async def test_an_example_runs_and_reports_what_happened(name, gate_of, clients_python, tmp_path):
    if name == "coding_agent" and shutil.which("bwrap") is None:
        pytest.skip("its commands run in bubblewrap, which is not installed: apt-get install bubblewrap")
    ends = [(replies[name], reward) for replies, reward in ((GOOD, 1.0), (BAD, 0.0)) if name in replies]
    runs = [run_example(name, replies, gate_of, clients_python, tmp_path / str(reward)) for replies, reward in ends]
    for (rows, rewards, told), (replies, reward) in zip(await asyncio.gather(*runs), ends, strict=True):
        assert len(rows) == len(replies), told
        assert {row.token_status for row in rows} == {"exact"}
        assert [row.fork_reason for row in rows] == ["root"] + [None] * (len(rows) - 1)
        assert set(rewards) == {reward}, told


@pytest.mark.parametrize(("name", "most"), [*((name, 29) for name in GOOD), ("session", 39)])
def test_an_example_is_short(name, most):
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) <= most


async def test_an_example_without_a_gateway_or_with_another_ones_key_says_what_to_do(start, tmp_path):
    key = tmp_path / "else" / "keys" / "operator"

    async def complaint(url):
        running = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "import session; session.start('t')",
            cwd=EXAMPLES, env={**os.environ, "GATEWAY_URL": url, "LAKELOOP_HOME": str(key.parents[1])},
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, said = await asyncio.wait_for(running.communicate(), 30)
        assert running.returncode == 1
        assert "`lakeloop up` starts a gateway" in said.decode() and "Traceback" not in said.decode()
        return said.decode()

    async with start() as stack:
        assert str(key) in await complaint(stack.url)
        key.parent.mkdir(parents=True)
        key.write_text("another")
        assert "needs the operator key" in await complaint(stack.url)
    assert "refused" in await complaint(stack.url)


def test_the_extra_names_what_the_lock_is_made_of():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = (ROOT / "deploy" / "requirements" / "clients.in").read_text().splitlines()
    assert project["optional-dependencies"]["clients"] == [line for line in lines if line and not line.startswith("#")]
