"""mini-swe-agent as `lakeloop collect --agent mini-swe-agent` plays it: its definition, its image, its end.

On bubblewrap alone: to import this image takes a Docker engine longer than all else here, and that programs run in Docker's boxes
is shown in test_programs. What it does with a model that calls no tool: tests/flows/test_kinds.py.
"""

import json

import pytest

from lakehouse.records import Status
from sandboxes.agents import COMMANDS
from sandboxes.backends.images import FOLDER
from sandboxes.backends.rootfs import Recipe
from sandboxes.gateway.scripted.engine import Scripted

MINI = COMMANDS["mini-swe-agent"]
COMMANDS_GIVEN = [
    "sed -i 's/a - b/a + b/' calc.py && cat calc.py",
    "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",
]


pytestmark = pytest.mark.optional  # its image is built by hand


@pytest.fixture
def image():
    """The agent's root file system, where it was made."""
    recipe = Recipe(tuple(MINI.debian), tuple(MINI.python))
    if not (FOLDER / f"root-{recipe.digest}").is_dir():
        pytest.skip(f"run `lakeloop images build --python {MINI.python[0]}` once as root")


def bash(command):
    function = {"name": "bash", "arguments": json.dumps({"command": command})}
    calls = [{"id": "c", "type": "function", "function": function}]
    return {"role": "assistant", "content": "So.", "tool_calls": calls}


@pytest.mark.bubblewrap
@pytest.mark.usefixtures("image", "bench")
async def test_mini_swe_agent_repairs_a_problem_and_its_calls_are_the_episodes(play, bubblewrap):
    engine = Scripted([bash(command) for command in COMMANDS_GIVEN])
    result = await play(MINI, bubblewrap, engine, deadline_s=600)
    assert (result.episode.status, result.episode.error) == (Status.OK, None)
    assert {call.token_status for call in result.calls} == {"exact"}
    assert [call.fork_reason for call in result.calls] == ["root", None]
    assert json.loads(result.calls[0].request_messages)[-1]["content"] == "add() subtracts."
    [fact] = result.evidence
    assert json.loads(fact.value)["calc.py"] == "def add(a, b):\n    return a + b\n"
