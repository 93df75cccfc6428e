"""A program in a box as an agent: what it sees, what is kept of it, and that its failures are never a reward."""

import json

import pytest

from lakehouse.records import Status
from sandboxes.agents import CommandAgent
from sandboxes.backends.base import SandboxError
from sandboxes.gateway.scripted.engine import Scripted
from sandboxes.programs import check

REPAIR = """
pathlib.Path("calc.py").write_text(ask(sys.argv[1]))
pathlib.Path("new.txt").write_text("so")
print("key", os.environ["OPENAI_API_KEY"])
print("files", sorted(path.name for path in pathlib.Path(".").iterdir()), file=sys.stderr)
"""


async def test_a_program_calls_the_model_and_the_tree_it_leaves_is_graded(agent, play, backend, bench):
    result = await play(agent(REPAIR), backend, Scripted(["repaired"]))
    episode = result.episode
    assert (episode.status, episode.error, episode.agent) == (Status.OK, None, "mine")
    assert (episode.backend, episode.n_calls) == (backend.name, 1)
    [call] = result.calls
    assert call.token_status == "exact"
    assert json.loads(call.request_messages)[-1]["content"] == "add() subtracts."
    [action] = result.actions
    assert action.tool == "mine"
    assert not action.is_error
    assert action.observation.startswith("exit 0\n")
    assert "key [the session's key]" in action.observation
    assert "'.agent', 'calc.py', 'new.txt', 'run.sh'" in action.observation
    [fact] = result.evidence
    assert json.loads(fact.value) == {"calc.py": "repaired", "new.txt": "so", "run.sh": "#!/bin/sh\n"}
    assert bench.tree.executable == {"run.sh"}


@pytest.mark.bubblewrap
async def test_a_tree_that_is_too_large_is_graded_as_if_nothing_had_been_done(agent, play, bubblewrap, bench):
    result = await play(agent("ask('hi'); open('large', 'wb').truncate(2 << 30)"), bubblewrap, Scripted(["x"]))
    assert (result.episode.status, bench.graded) == (Status.OK, 1)
    assert "a - b" in json.loads(result.evidence[0].value)["calc.py"]
    assert "nothing of what the program left is kept" in result.actions[0].observation


@pytest.mark.bubblewrap
@pytest.mark.parametrize(
    ("program", "status", "said"),
    [
        ("ask('hi'); sys.exit(3)", Status.AGENT_ERROR, "exit status 3"),
        ("ask('hi'); os.kill(os.getpid(), 9)", Status.AGENT_ERROR, "exit status -9"),
        ("ask('hi'); raise ValueError('a bug')", Status.AGENT_ERROR, "ValueError: a bug"),
        ("pass", Status.AGENT_ERROR, "never called the model"),
    ],
)
async def test_a_program_that_fails_or_never_calls_the_model_is_an_agent_error_and_is_not_graded(
    agent, play, bubblewrap, bench, program, status, said
):
    result = await play(agent(program), bubblewrap, Scripted(["x"]))
    assert (result.episode.status, bench.graded, result.evidence) == (status, 0, [])
    assert said in result.episode.error
    assert len(result.calls) == ("ask" in program)  # what was recorded is kept
    assert len(result.actions) == 1


@pytest.mark.bubblewrap
async def test_a_program_that_does_not_end_is_stopped_and_its_episode_a_timeout(agent, play, bubblewrap, bench):
    endless = agent("ask('hi'); print('so far', flush=True); time.sleep(600)", timeout_s=5)
    result = await play(endless, bubblewrap, Scripted(["x"]))
    assert (result.episode.status, bench.graded, result.episode.n_calls) == (Status.TIMEOUT, 0, 1)
    assert "did not end within 5 s" in result.episode.error
    assert result.actions[0].observation == "stopped at its time limit\nso far\n"


@pytest.mark.bubblewrap
async def test_an_engine_that_fails_at_the_end_is_no_outcome_of_the_agent(agent, play, bubblewrap, bench):
    engine = Scripted(["x"])
    engine.failures.append("500")
    shrugging = agent("try: ask('hi')\nexcept OSError: pass\n")
    result = await play(shrugging, bubblewrap, engine)
    assert (result.episode.status, bench.graded) == (Status.INFRA_ERROR, 0)


@pytest.mark.bubblewrap
async def test_without_a_door_or_an_image_nothing_begins_and_the_remedy_is_named(
    agent, play, bubblewrap, bench, tmp_path
):
    result = await play(agent("ask('hi')"), bubblewrap, Scripted(["x"]), door=False)
    assert result.episode.status == Status.INFRA_ERROR
    assert "start the gateway with --socket" in result.episode.error
    door = tmp_path / "door" / "gateway.sock"
    door.parent.mkdir()
    door.touch()
    missing = CommandAgent(name="mine", command=["x"], python=["nothing-of-this-name==1.0"])
    with pytest.raises(SandboxError, match=r"run `lakeloop images build --python nothing-of-this-name==1\.0` once"):
        await check(missing, bubblewrap, door)


@pytest.mark.bubblewrap
async def test_two_images_in_one_box_are_refused(agent, play, bubblewrap, bench):
    bench.image = "theirs:1"
    result = await play(agent("ask('hi')", image="ours:1"), bubblewrap, Scripted(["x"]))
    assert result.episode.status == Status.AGENT_ERROR
    assert "the problem has an image of its own (theirs:1) and so has the agent (ours:1)" in result.episode.error
