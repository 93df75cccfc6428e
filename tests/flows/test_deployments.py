"""`prefect.yaml`: each flow once, with a form that explains itself, scheduled and paused."""

from importlib import import_module
from pathlib import Path

import pytest
import typer
import yaml

from flows.cli.app import app
from flows.cli.runs import FLOWS

DEPLOYMENTS = yaml.safe_load((Path(__file__).parents[2] / "prefect.yaml").read_text())["deployments"]
ELSEWHERE = {
    "build": "problems build swe",
    "erase": "erase",
    "gate": "gate",
    "offpolicy": "offpolicy",
}  # flows with a command of their own
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
        "offpolicy",
    )  # a release needs a folder, an erasure its plan, a gate a version
    assert len(schedules) == (0 if deployment["name"] in asked_for else 1)
    assert [schedule["active"] for schedule in schedules] == [False] * len(schedules)
