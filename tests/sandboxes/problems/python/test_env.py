import json

import pytest

from lakehouse.records import digest
from sandboxes.backends.base import SandboxError
from sandboxes.backends.scripted import ScriptedBackend, said
from sandboxes.problems.base import EnvironmentFailure, Listener
from sandboxes.problems.gates import Gates, gates
from sandboxes.problems.python import KIND, build
from sandboxes.problems.python import env as world


@pytest.fixture(scope="module")
def problems():
    return build.build(per_template=1)


@pytest.fixture(scope="module")
def problem(problems):
    return problems[0]


@pytest.fixture
async def environment(problem, backend):
    opened = await KIND.open(problem, backend)
    yield opened
    await opened.close()


async def say(environment, code):
    return await environment.call("python", {"code": code})


async def test_state_stays_between_calls(environment):
    assert (await say(environment, "import math\nx = 20\ndef twice(n):\n    return 2 * n")).text == "no output"
    assert (await say(environment, "y = twice(x) + math.floor(2.5)\nprint('y is', y)")).text == "y is 42"
    assert (await say(environment, "y")).text == "42"


async def test_what_earlier_cells_print_is_not_heard_again(environment):
    await say(environment, "import subprocess\nprint('loud')\nsubprocess.run(['echo', 'louder'])\nx = 1")
    assert (await say(environment, "x")).text == "1"


async def test_an_exception_is_shown_and_what_ran_before_it_stays(environment):
    seen = await say(environment, "x = 5\n1 / 0")
    assert seen.is_error and "ZeroDivisionError" in seen.text and "interpreter" not in seen.text
    assert (await say(environment, "x")).text == "5"
    wrong = await say(environment, "def")
    assert wrong.is_error and "SyntaxError" in wrong.text


async def test_chance_repeats_itself_so_that_the_state_does(environment):
    first = await say(environment, "import random\nx = random.random()\nprint(x, hash('a'))")
    again = await say(environment, "print(x, hash('a'))")
    assert again.text == first.text


async def test_files_stay(environment):
    await say(environment, "open('a.txt', 'w').write('kept')")
    assert (await say(environment, "print(open('a.txt').read())")).text == "kept"


async def test_an_interpreter_that_is_killed_leaves_the_state_as_before(environment):
    await say(environment, "x = 7")
    seen = await say(environment, "x = 8\nimport os\nos._exit(0)")
    assert seen.is_error and "as before" in seen.text
    assert (await say(environment, "x")).text == "7"
    assert not (await say(environment, "import sys\nx = 9\nsys.exit(3)")).is_error
    assert (await say(environment, "x")).text == "9"


async def test_a_cell_that_does_not_end_is_stopped_and_forgotten(environment, monkeypatch):
    monkeypatch.setattr(world, "CALL_S", 1.0)
    await say(environment, "x = 3")
    seen = await say(environment, "x = 4\nwhile True: pass")
    assert seen.is_error and "stopped" in seen.text
    monkeypatch.setattr(world, "CALL_S", 20.0)
    assert (await say(environment, "x")).text == "3"
    assert (await environment.grade())[1].value == {"cells": 2, "failed": 0, "timed_out": 1}


async def test_long_output_keeps_head_and_tail(environment):
    seen = await say(environment, "for i in range(9999): print(i)")
    assert len(seen.text) <= world.OUTPUT and seen.text.startswith("0\n") and seen.text.endswith("9999"[:-1] + "8")


@pytest.mark.parametrize("split", ["train", "eval"])
async def test_shipped_problems_pass_both_gates_in_a_real_box(problems, backend, split):
    for problem in [one for one in problems if one.split == split][::9]:
        assert await gates(KIND, problem, backend) == Gates(True, True), problem.problem_id


async def answered(problem, *, tool=None, text=None):
    environment = await KIND.open(problem, ScriptedBackend())
    if tool is not None:
        assert (await environment.call("answer", {"text": tool})).done
    if text is not None:
        environment.hear(text)
    facts = await environment.grade()
    return KIND.solved(facts), facts[0].value


async def test_answers_count_from_the_tool_and_where_marked_from_plain_text(problem):
    right = json.loads(problem.spec)["answer"]
    for told in (right, f"#### {right}", f"It is \\boxed{{{right}}}", f"${right}"):
        solved, answer = await answered(problem, tool=told)
        assert solved and answer["value"] is not None, told
    assert (await answered(problem, text=f"So it is \\boxed{{{right}}}."))[0]
    assert (await answered(problem, text=f"work\n#### {right}"))[0]


async def test_wrong_several_or_unmarked_answers_do_not_count(problem):
    right = json.loads(problem.spec)["answer"]
    for told in (f"1{right}", f"{right} or 3", f"3, {right}", "", "I do not know"):
        assert not (await answered(problem, tool=told))[0], told
    solved, answer = await answered(problem, text=f"It is {right}, I think.")
    assert not solved and answer["given"] is None


async def test_an_environment_listens(problem):
    assert isinstance(await KIND.open(problem, ScriptedBackend()), Listener)


@pytest.mark.parametrize(
    ("name", "arguments"), [("bash", {}), ("python", {}), ("python", {"code": 3}), ("answer", {"text": "1", "x": 2})]
)
async def test_wrong_calls_are_observations(problem, name, arguments):
    environment = await KIND.open(problem, ScriptedBackend())
    seen = await environment.call(name, arguments)
    assert seen.is_error and not seen.done


async def test_a_box_that_is_gone_is_no_fault_of_the_model(problem):
    def dies(argv, files):
        raise SandboxError("gone")

    environment = await KIND.open(problem, ScriptedBackend(dies))
    with pytest.raises(SandboxError):
        await say(environment, "1")


async def test_a_model_may_call_python_only_so_often(problem, monkeypatch):
    monkeypatch.setattr(world, "MOST_CELLS", 0)
    environment = await KIND.open(problem, ScriptedBackend(lambda argv, files: said()))
    assert "answer now" in (await say(environment, "1")).text


async def test_a_spec_that_is_none_fails_the_environment(problem):
    for spec in ("{}", "[", json.dumps({"template": digest("x"), "answer": "1/0"})):
        with pytest.raises(EnvironmentFailure, match="python"):
            await KIND.open(problem.model_copy(update={"spec": spec}), ScriptedBackend())
