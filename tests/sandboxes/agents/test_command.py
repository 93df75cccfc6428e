"""A command-line agent: what its definition may say, what it is given, and what becomes of its end."""

import json

import pytest

from lakehouse.records import Status
from sandboxes.agents import COMMANDS, DefinitionError, find
from sandboxes.agents.base import AgentFailure, Endpoint, Job, Ran, Sampling
from sandboxes.agents.command import fill, read
from sandboxes.deadline import Deadline

PLAIN = 'name = "mine"\ncommand = ["solve", "{problem}"]\n'


class Programs:
    """Keeps what it is to run, and answers."""

    base_url = "http://127.0.0.1:8900/v1"
    folder = "/testbed/.agent"

    def __init__(self, exit_code=0, output="done"):
        self.ran = Ran(exit_code, output)
        self.asked = []

    async def run(self, program):
        self.asked.append(program)
        return self.ran


@pytest.fixture
def define(tmp_path):
    def write(text):
        path = tmp_path / "agent.toml"
        path.write_text(text)
        return path

    return write


def job(programs, deadline_s=60):
    return Job(
        environment=None,
        endpoint=Endpoint("http://outside/v1", "ll-model-secret", "tiny"),
        sampling=Sampling(temperature=0.5, max_turns=3),
        plan=(),
        deadline=Deadline(deadline_s, "the episode"),
        statement="Repair {model} in {this}.",
        programs=programs,
    )


async def test_placeholders_are_filled_once_in_arguments_environment_and_files(define):
    agent = read(
        define(
            'name = "mine"\ncommand = ["solve", "{problem}", "--model={model}", "{{task}}"]\n'
            '[environment]\nURL = "{base_url} {root_url}"\nKEY = "{api_key}"\n'
            '[files]\n"conf/a.json" = \'{"steps": {max_turns}, "t": {temperature}, "x": {other}, "y": "{{problem}}"}\'\n'
        )
    )
    programs = Programs()
    await agent.run(job(programs))
    [program] = programs.asked
    assert program.argv == ["solve", "Repair {model} in {this}.", "--model=tiny", "{{task}}"]
    assert program.env == {
        "URL": "http://127.0.0.1:8900/v1 http://127.0.0.1:8900",
        "KEY": "ll-model-secret",
    }
    assert program.files == {"conf/a.json": b'{"steps": 3, "t": 0.5, "x": {other}, "y": "{{problem}}"}'}
    assert 50 < program.timeout_s <= 60  # what is left of the episode


async def test_a_program_has_what_the_episode_has_left_unless_its_definition_says_less(define):
    programs = Programs()
    await read(define(PLAIN)).run(job(programs, deadline_s=3600))
    await read(define(PLAIN + "timeout_s = 600\n")).run(job(programs, deadline_s=3600))
    assert [round(program.timeout_s / 10) for program in programs.asked] == [360, 60]


async def test_exit_status_and_output_are_kept_as_an_action_without_the_key(define):
    agent, about = read(define(PLAIN)), job(Programs(output="used ll-model-secret"))
    ending = await agent.run(about)
    assert (ending.status, ending.by_model) == (Status.OK, True)
    [step] = about.steps
    assert (step.tool, json.loads(step.arguments)) == ("mine", {"command": ["solve", "{problem}"]})
    assert step.observation.text == "exit 0\nused [the session's key]"
    assert not step.observation.is_error


async def test_a_command_that_fails_is_the_agents_failure_and_one_that_does_not_end_a_timeout(define):
    agent = read(define(PLAIN))
    failed = job(Programs(3, "Traceback: no such thing, ll-model-secret"))
    with pytest.raises(AgentFailure, match=r"solve ended with exit status 3: Traceback: no such thing, \[the session"):
        await agent.run(failed)
    assert failed.steps[0].observation.is_error
    endless = job(Programs(None, "so far"))
    with pytest.raises(TimeoutError, match="did not end within"):
        await agent.run(endless)
    assert endless.steps[0].observation.text == "stopped at its time limit\nso far"


async def test_where_there_is_no_work_tree_nothing_is_run(define):
    with pytest.raises(AgentFailure, match="no work tree"):
        await read(define(PLAIN)).run(job(None))


async def test_a_folder_goes_into_the_box_as_it_is(define, tmp_path):
    (tmp_path / "mine" / "sub").mkdir(parents=True)
    (tmp_path / "mine" / "sub" / "tool.py").write_bytes(b"print('{model}')\xff")
    programs = Programs()
    await read(define(PLAIN + 'folder = "mine"\n')).run(job(programs))
    assert programs.asked[0].files == {"sub/tool.py": b"print('{model}')\xff"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('name = "mine"\n', "command Field required"),
        (PLAIN + 'colour = "red"\n', "colour Extra inputs"),
        ('name = "mine"\ncommand = ["solve", "{task}"]\n', "no placeholder {task}; there are base_url"),
        (PLAIN + '[environment]\nA = "{key}"\n', "no placeholder {key}"),
        (PLAIN + 'image = "x"\npython = ["a==1"]\n', "takes the place"),
        (PLAIN + 'folder = "nowhere"\n', "is no folder"),
        (PLAIN + "timeout_s = 0\n", "timeout_s Input should be greater than 0"),
        ("name = mine\n", "agent.toml: "),
        ('name = "swe"\ncommand = ["x"]\n', "taken by an agent that comes with Lakeloop"),
    ],
)
def test_a_definition_that_cannot_be_used_says_what_is_wrong_with_it(define, text, said):
    with pytest.raises(DefinitionError) as error:
        find(str(define(text)))
    assert said in str(error.value)


def test_an_agent_is_found_by_name_or_file(define, tmp_path):
    assert find("mini-swe-agent") is COMMANDS["mini-swe-agent"]
    assert find(str(define(PLAIN))).name == "mine"
    with pytest.raises(DefinitionError, match=r"no agent is called 'other'; there are .*mini-swe-agent.*, or a file"):
        find("other")
    with pytest.raises(DefinitionError, match="No such file"):
        find(str(tmp_path / "other.toml"))


def test_a_placeholder_may_stand_beside_the_braces_of_json():
    values = {"max_tokens": "5", "model": "m"}
    assert (
        fill('{"a": {"n": {max_tokens}}, "b": {{model}}, "c": {{{model}}}', values)
        == '{"a": {"n": 5}, "b": {{model}}, "c": {{{model}}}'
    )
    assert fill("{{max_tokens}} {max_tokens}}", values) == "{{max_tokens}} 5}"


def test_what_stands_in_for_a_placeholder_is_not_filled_again():
    assert fill("{problem} {model}", {"problem": "{model}", "model": "m"}) == "{model} m"
