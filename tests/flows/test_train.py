"""What the options of `lakeloop train` ask of the selection."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from flows import train as flow
from lakehouse.selection.select import LoopStep, Selection
from tasks.training.errors import TrainingError


class Asked(Exception):
    """Carries the selection out of the flow."""


async def test_every_option_of_a_selection_reaches_it(monkeypatch, tmp_path):
    async def choose(selection: Selection, step: LoopStep | None) -> None:
        raise Asked(selection, step)

    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))
    monkeypatch.setattr(flow, "starting_point", lambda parent: (parent, Path("model")))
    monkeypatch.setattr(flow, "choose_rows", choose)
    with pytest.raises(Asked) as told:
        await flow.train.fn(
            run_ids=["r"],
            group_ids=["g"],
            rubrics=["swe@2"],
            filter="grpo+short",
            filter_settings={"max_calls": 8},
            credit="steps",
            discount=0.9,
            advantage="dr_grpo",
            objective="dr_grpo",
            overlong={"limit": 512, "buffer": 128},
            parent=4,
            max_staleness=3,
            loop_id="L",
            loop_step=2,
        )
    selection, step = told.value.args
    assert step == LoopStep("L", 2)
    assert selection.model_dump(exclude={"model_name"}) == {
        "objective": "dr_grpo",
        "rubrics": ["swe@2"],
        "filter": "grpo+short",
        "settings": {"max_calls": 8},
        "run_ids": ["r"],
        "group_ids": ["g"],
        "policy_version": 4,
        "max_staleness": 3,
        "max_tokens_per_row": 2048,
        "credit": "steps",
        "discount": 0.9,
        "advantage": "dr_grpo",
        "overlong": {"limit": 512, "buffer": 128, "penalty": 1.0},
    }


async def test_advantages_that_do_not_fit_the_objective_are_refused_before_anything_is_selected(monkeypatch, tmp_path):
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))
    monkeypatch.setattr(flow, "starting_point", lambda parent: (parent, Path("model")))
    with pytest.raises(ValidationError, match="dr_grpo"):
        await flow.train.fn(objective="dr_grpo", advantage="grpo", rubrics=["swe@2"], parent=4)


async def test_a_teacher_that_is_no_model_is_refused_before_anything_is_selected(monkeypatch, tmp_path):
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))
    monkeypatch.setattr(flow, "starting_point", lambda parent: (parent, Path("model")))
    monkeypatch.setattr(flow, "version_folder", lambda version: tmp_path)
    with pytest.raises(TrainingError, match=r"teacher: .* is not a model folder"):
        await flow.train.fn(objective="distill", teacher=7, rubrics=["swe@2"], parent=4)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"training_set_id": "ts-1", "filter": "grpo", "max_staleness": 0}, "leave out filter, max_staleness"),
        ({"training_set_id": "ts-1", "advantage": "grpo"}, "leave out advantage"),
        ({"loop_id": "L"}, "give both or none"),
        ({"loop_step": 0}, "give both or none"),
    ],
)
async def test_what_would_have_to_be_ignored_is_refused(given, said):
    with pytest.raises(ValueError, match=said):
        await flow.train.fn(**given)


@pytest.fixture
def folders(monkeypatch, tmp_path):
    """The folders that trainers were given. Selecting gives what `chosen` holds; the trainer only notes where it was sent."""
    given, chosen = [], {"training_set_id": "ts-1"}

    async def choose(selection, step=None):
        return SimpleNamespace(training_set_id=chosen["training_set_id"], rows=1)

    async def fit(training_set_id, config, deadline_s):
        given.append(config.output)
        assert (config.rows.parent, config.mlflow.run_name) == (config.output.parent, config.output.parent.name)
        raise Asked

    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))
    monkeypatch.setattr(flow, "starting_point", lambda parent: (parent, Path("model")))
    monkeypatch.setattr(flow, "choose_rows", choose)
    monkeypatch.setattr(flow, "fit", fit)

    async def train(*, flow_run, start=4, training_set="ts-1"):
        chosen["training_set_id"] = training_set
        monkeypatch.setenv("PREFECT__RUNTIME__FLOW_RUN__ID", flow_run)
        with pytest.raises(Asked):
            await flow.train.fn(objective="sft", rubrics=["swe@2"], parent=start)
        return given[-1]

    return train


async def test_a_flow_run_that_is_retried_goes_on_in_its_folder_unless_it_has_other_rows_or_another_start(folders):
    first = await folders(flow_run="a")
    assert await folders(flow_run="a") == first
    others = [
        await folders(flow_run="b"),
        await folders(flow_run="a", start=5),
        await folders(flow_run="a", training_set="ts-2"),
    ]
    assert len({first, *others}) == 4
