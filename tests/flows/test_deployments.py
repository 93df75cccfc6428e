"""`prefect.yaml`: each flow once, with a form that explains itself, scheduled and paused."""

import re
from importlib import import_module
from pathlib import Path

import pytest
import typer
import yaml
from prefect.cli.deploy._triggers import DeploymentTriggerAdapter

from flows.cli.app import app
from flows.cli.runs import FLOWS
from tasks import events

DEPLOYMENTS = yaml.safe_load((Path(__file__).parents[2] / "prefect.yaml").read_text())["deployments"]
ELSEWHERE = {
    "build": "problems build swe",
    "erase": "erase",
    "gate": "gate",
    "offpolicy": "offpolicy",
}  # flows with a command of their own
TOLD = set(re.findall(r"(?m)^\| lakeloop\.([a-z.-]+) \|", events.__doc__ or ""))
every_deployment = pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda one: one["name"])


def test_every_flow_is_a_command_and_a_deployment():
    assert sorted(one["name"] for one in DEPLOYMENTS) == sorted([*FLOWS, *ELSEWHERE])
    for words in ELSEWHERE.values():
        found = typer.main.get_command(app)
        for word in words.split():
            found = found.commands[word]


@every_deployment
def test_the_parameters_make_a_form_with_a_description_of_each(deployment):
    module, _, name = deployment["entrypoint"].rpartition(".")
    schema = getattr(import_module(module), name).parameters.model_dump()
    assert schema["type"] == "object"
    for parameter, about in schema["properties"].items():
        assert about.get("description"), parameter
        assert {"type", "anyOf", "enum", "$ref", "allOf"} & about.keys(), parameter
    assert set(schema.get("required", [])) <= schema["properties"].keys()
    assert deployment["description"]


@every_deployment
def test_a_schedule_is_there_and_paused(deployment):
    schedules = deployment.get("schedules", [])
    asked_for = (
        "release",
        "erase",
        "gate",
        "canary",
        "offpolicy",
    )  # a release needs a folder, an erasure its plan, a gate and a canary a version
    assert len(schedules) == (0 if deployment["name"] in asked_for else 1)
    assert [schedule["active"] for schedule in schedules] == [False] * len(schedules)


@every_deployment
def test_a_schedule_has_a_name_by_which_its_switch_is_kept(deployment):
    assert all(schedule["slug"] for schedule in deployment.get("schedules", []))


@every_deployment
def test_triggers_are_shipped_switched_off_and_give_parameters_that_the_flow_has(deployment):
    module, _, name = deployment["entrypoint"].rpartition(".")
    known = getattr(import_module(module), name).parameters.properties
    for trigger in map(DeploymentTriggerAdapter.validate_python, deployment.get("triggers", [])):
        assert not trigger.enabled
        assert trigger.description
        assert set(trigger.parameters or {}) <= known.keys()
        assert {one.removeprefix("lakeloop.") for one in trigger.expect} <= TOLD


def test_every_event_that_is_documented_is_told_somewhere_and_the_other_way_round():
    told = {
        found
        for folder in ("flows", "tasks")
        for file in (Path(__file__).parents[2] / folder).rglob("*.py")
        for found in re.findall(r'tell\(\s*"([\w.]+)"', file.read_text())
    }
    assert told == TOLD
