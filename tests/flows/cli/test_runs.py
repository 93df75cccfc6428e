"""Commands that run flows: their options are the flow's parameters, and what is wrong is said before anything runs."""

from importlib import import_module

import pytest

from flows.cli.runs import FLOWS, parse
from flows.collect import collect
from flows.label import label
from flows.quickstart import quickstart
from flows.train import train

FLOW = {name: getattr(import_module(f"flows.{name}"), name) for name in FLOWS}
COLLECTING = [FLOW["collect"], FLOW["evaluate"], FLOW["improve"], quickstart]


def test_the_top_level_help_names_every_command(lakeloop):
    ended = lakeloop("--help")
    assert ended.status == 0
    for name in (*FLOWS, "quickstart", "up", "down", "status", "query", "tables", "notebook", "episodes", "problems"):
        assert f" {name} " in ended.said


@pytest.mark.parametrize("name", FLOWS)
def test_the_help_of_a_flow_describes_every_parameter(lakeloop, name):
    ended = lakeloop(name, "--help")
    assert ended.status == 0
    for parameter, about in FLOW[name].parameters.model_dump()["properties"].items():
        assert f"--{parameter.replace('_', '-')} " in ended.said
        assert " ".join(about["description"].split()) in ended.said
    assert "Args:" not in ended.out


@pytest.mark.parametrize("name", ["max_tokens", "max_turns"])
def test_how_far_an_episode_may_go_is_said_alike_wherever_episodes_are_collected(name):
    parameters = [flow.parameters.model_dump()["properties"][name] for flow in COLLECTING]
    said = [{what: value for what, value in one.items() if what != "position"} for one in parameters]
    assert said == [said[0]] * len(COLLECTING)


def test_values_are_json_where_they_look_like_it_and_null_is_none():
    wanted = ["--problems", '{"search": 3}', "--samples", "2", "--run-id", "null", "--purpose", "a [b]"]
    assert parse(collect, wanted) == {
        "problems": {"search": 3},
        "samples": "2",  # the flow makes a number of it
        "run_id": None,
        "purpose": "a [b]",
    }
    assert parse(label, ["--run-ids", '["a", "b"]']) == {"run_ids": ["a", "b"]}
    assert parse(label, ["--rubric", "swe@2", "--run-id", "[a", "--run-id", "b"]) == {
        "rubrics": ["swe@2"],
        "run_ids": ["[a", "b"],
    }
    assert parse(train, []) == {}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["collect", "--shards", "3"], "unrecognized arguments: --shards"),
        (["collect", "--sample", "3"], "unrecognized arguments: --sample"),
        (["collect", "--samples"], "--samples: expected one argument"),
        (["collect", "--problems", "{search: 3}"], "--problems: not JSON"),
        (["collect", "--samples", "0"], "samples: Input should be greater than or equal to 1"),
        (["collect", "--samples", "many"], "samples: Input should be a valid integer"),
        (["collect", "--agent", "human"], "no agent is called 'human'; there are"),
        (["collect", "--prompts", "gone"], "no folder gone with prompts"),
        (["evaluate", "--prompts", "gone"], "no folder gone with prompts"),
        (["improve", "--prompts", "gone"], "no folder gone with prompts"),
        (["label", "--run-ids", "run-1"], "run_ids: Input should be a valid list"),
        (["label", "--rubric", "swe@2", "--rubrics", "[]"], "write one of them"),
        (["release"], "the following arguments are required: --folder"),
        (["improve", "--rounds", "1", "2"], "unrecognized arguments: 2"),
        (["improve", "--loop-id", "../x"], "loop_id: String should match pattern"),
        (["improve", "--staleness", "-1"], "staleness: Input should be greater than or equal to 0"),
        (["colect"], "No such command 'colect'"),
    ],
)
def test_what_the_flow_would_refuse_is_a_usage_error(lakeloop, arguments, said):
    ended = lakeloop(*arguments)
    assert ended.status == 2
    assert said in ended.said
    assert "Traceback" not in ended.said


@pytest.mark.parametrize("name", ["collect", "label", "maintain"])
def test_a_flow_without_a_stack_says_how_to_get_one(lakeloop, name):
    ended = lakeloop(name)
    assert ended.status == 1
    assert ended.err.startswith("error: no Prefect server of ")
    assert "nothing answers. Run `lakeloop up` first." in ended.said


def test_the_one_parameter_without_a_default_needs_no_name():
    assert parse(FLOW["canary"], ["5", "--share", "0.2"]) == {"version": "5", "share": "0.2"}
    assert parse(FLOW["canary"], ["--version", "5"]) == {"version": "5"}


@pytest.mark.parametrize(
    ("arguments", "given"),
    [([], {}), (["--dry-run"], {"dry_run": "true"}), (["--dry-run", "false"], {"dry_run": "false"})],
)
def test_a_switch_needs_no_value(arguments, given):
    assert parse(FLOW["maintain"], arguments) == given
