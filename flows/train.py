"""Train: labelled episodes become a training set, and a training set becomes weights."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import uuid4

from prefect import flow
from prefect.runtime import flow_run
from pydantic import BaseModel, Field

from lakehouse.export import training_set
from lakehouse.records import TrainingSet, digest
from lakehouse.selection.estimators import Estimator
from lakehouse.selection.select import LoopStep, Selection, estimator_of
from tasks.label import current_rubrics
from tasks.serving import models
from tasks.stack.settings import Settings
from tasks.train import choose_rows, fit, starting_point, tell_mlflow, version_folder
from tasks.training.config import TrainConfig
from tasks.training.data.loading import check_others
from tasks.training.objectives import OBJECTIVES, ObjectiveName, Proximal
from tasks.training.outbox import left_over
from tasks.training.recipes import recipe

MAX_STALENESS = 1  # versions, unless told otherwise


class WrongObjective(ValueError):
    """A training set holds rows for another objective."""


class Trained(BaseModel):
    """New weights and what they were made from."""

    folder: Path
    parent: int
    training_set_id: str
    mlflow_run_id: str
    rows: int
    metrics: dict[str, float]
    diagnosis: list[str] = []  # why it does not learn, in words


@flow(name="train", flow_run_name="train-{objective}", log_prints=True)
async def train(
    objective: ObjectiveName = "grpo",
    objective_options: dict[str, bool | int | float | str] | None = None,
    run_ids: list[str] | None = None,
    group_ids: list[str] | None = None,
    rubrics: list[str] | None = None,
    filter: str | None = None,
    filter_settings: dict[str, bool | int | float | str] | None = None,
    credit: Literal["outcome", "steps"] | None = None,
    discount: Annotated[float, Field(gt=0, le=1)] | None = None,
    advantage: Estimator | None = None,
    overlong: dict[str, int | float] | None = None,
    proximal: Proximal | None = None,
    correction: dict[str, int | float | str] | None = None,
    kl: dict[str, float | str] | None = None,
    reference: int | None = None,
    teacher: int | str | None = None,
    entropy_bonus: Annotated[float, Field(ge=0)] = 0.0,
    parent: int | None = None,
    max_staleness: Annotated[int, Field(ge=0)] | None = None,
    learning_rate: Annotated[float, Field(gt=0)] | None = None,
    epochs: Annotated[int, Field(ge=1)] | None = None,
    minibatch: Annotated[int, Field(ge=1)] | None = None,
    lora: Annotated[int, Field(ge=1)] | None = None,
    ranks: Annotated[int, Field(ge=1)] = 2,
    seed: int = 0,
    deadline_s: Annotated[float, Field(gt=0)] = 3600,
    training_set_id: str | None = None,
    loop_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")] | None = None,  # names a folder
    loop_step: Annotated[int, Field(ge=0)] | None = None,
) -> Trained:
    """Select rows, write the training set, run the trainer. The weights are not yet registered: that is `release`.

    Args:
        objective: sft learns from demonstrations, the others from what the policy sampled: docs/objectives.md.
        objective_options: Where not the recipe's, such as {"clip_high": 0.3}.
        run_ids: Runs to select from, of the served model. Default: all.
        group_ids: Groups of these to select from. Default: all.
        rubrics: Rubrics with their versions. Default: the current one of every kind of problem.
        filter: Filters by name, one after another, such as grpo+dedup+short; `lakeloop filters` lists them. Default: the
            objective's own.
        filter_settings: Settings of these filters, such as {"max_calls": 8}. Default: each filter's own.
        credit: outcome, the default, gives all tokens of an episode its advantage; steps goes call by call over the call tree,
            with the rewards that rubrics gave to calls.
        discount: For steps: what is left of a call's reward for the call before it. Default: all.
        advantage: How rewards become advantages: docs/selection.md. Default: the objective's own.
        overlong: What long episodes lose of their reward, such as {"limit": 512, "buffer": 128}. Default: nothing.
        proximal: What the ratio is taken to: the policy recomputed, the one that sampled (behaviour), or in between
            (approximated). Default: the recipe's.
        correction: Off-policy correction by name with its options, such as {"name": "icepop", "high": 4}; {"name": "none"}
            for none. Default: truncated weights wherever the proximal policy is not the one that sampled.
        kl: Penalty on the distance to a reference, such as {"coefficient": 0.01, "estimator": "k3"}.
        reference: Version that kl and dpo measure from. Default: for dpo the parent, for kl it must be named.
        teacher: For distill: a version of the served model to learn from, or the folder or name of a model with its tokenizer.
        entropy_bonus: Reward per nat of entropy at a trained token.
        parent: Version to start from. Default: the promoted one.
        max_staleness: How many steps of training an episode may be behind the parent. Default: 1.
        learning_rate: Default: the recipe's.
        epochs: Passes over the rows. Default: the recipe's.
        minibatch: Rows per optimiser step. Default: the recipe's.
        lora: Train adapters of this rank, and merge them into the weights at the end. Default: all weights.
        ranks: Processes under torchrun.
        seed: Order of the rows.
        deadline_s: Seconds the trainer may take.
        training_set_id: Train on this set, which is there, in place of a selection: as it was pinned, from the version it was
            selected for.
        loop_id: The loop that this is a step of. Its run has a folder of its own, in which one that was broken off goes on.
        loop_step: Which step, from 0 on.
    """
    settings = Settings()
    chosen = {
        "run_ids": run_ids,
        "group_ids": group_ids,
        "rubrics": rubrics,
        "filter": filter,
        "credit": credit,
        "discount": discount,
        "overlong": overlong,
        "max_staleness": max_staleness,
    }
    _one_way(
        training_set_id, {**chosen, "filter_settings": filter_settings, "advantage": advantage}, loop_id, loop_step
    )
    known = None if training_set_id is None else _pinned(training_set_id, objective)
    compared = advantage or OBJECTIVES[objective].estimators[0] if known is None else estimator_of(known)
    parent = known.policy_version if known and parent is None else parent
    start, model = await asyncio.to_thread(starting_point, parent)
    step = None if loop_id is None or loop_step is None else LoopStep(loop_id, loop_step)
    asked = {
        "learning_rate": learning_rate,
        "epochs": epochs,
        "minibatch": minibatch,
        "proximal": proximal,
        "kl": kl,
        "reference": None if reference is None else version_folder(reference),
        "teacher": None if teacher is None else _teacher(teacher, settings),
    }
    config = TrainConfig.model_validate(
        recipe(objective, objective_options or {}, correction)
        | {name: value for name, value in asked.items() if value is not None}
        | {
            "model": model,
            "policy_version": start,
            "entropy_bonus": entropy_bonus,
            "advantage": compared,
            "lora": None if lora is None else {"rank": lora, "alpha": 2 * lora},
            "ranks": ranks,
            "seed": seed,
        }
        | _placed(settings, "not-named-yet")
    )
    await asyncio.to_thread(check_others, config)
    if known is None:
        selection = Selection.model_validate(
            {
                "objective": objective,
                "rubrics": current_rubrics(),
                "filter": OBJECTIVES[objective].filter,
                "settings": filter_settings or {},
                "advantage": compared,
                "model_name": settings.model_name,
                "policy_version": start,
                "max_staleness": MAX_STALENESS,
            }
            | {name: value for name, value in chosen.items() if value not in (None, [], {}, "")}
        )
        selected = await choose_rows(selection, step)
        training_set_id, rows = selected.training_set_id, selected.rows
    else:
        training_set_id, rows = known.training_set_id, known.n_rows
    run = f"{loop_id}-step-{step.number}" if step else f"{objective}-{_own(training_set_id, start)}"
    config = TrainConfig.model_validate(config.model_dump() | _placed(settings, run))
    fitted = await fit(training_set_id, config, deadline_s)
    for one in fitted.diagnosis:
        print(one)
    run_id = fitted.mlflow_run_id
    if left_over(config.work_folder):
        told = tell_mlflow(config.work_folder, return_state=True)  # an outage is no reason to lose the weights
        run_id = await told.aresult() if told.is_completed() else run_id
    return Trained(
        folder=fitted.folder,
        parent=start,
        training_set_id=training_set_id,
        mlflow_run_id=run_id,
        rows=rows,
        metrics=fitted.metrics,
        diagnosis=[str(one) for one in fitted.diagnosis],
    )


def _teacher(teacher: int | str, settings: Settings) -> Path:
    """Of a version, which a shell gives as text, or of any other model."""
    if isinstance(teacher, int) or teacher.isdigit():
        return version_folder(int(teacher))
    return models.resolve(teacher, settings.home)


def _one_way(
    training_set_id: str | None, chosen: Mapping[str, object], loop_id: str | None, loop_step: int | None
) -> None:
    """ValueError where one parameter says what another one would have to be ignored for."""
    given = [name for name, value in chosen.items() if value is not None]
    if training_set_id is not None and given:
        raise ValueError(
            f"training set {training_set_id} is there and pinned: what chooses rows is for a new one, leave out {', '.join(given)}"
        )
    if (loop_id is None) != (loop_step is None):
        raise ValueError("loop_id and loop_step name one step of a loop: give both or none")


def _placed(settings: Settings, run: str) -> dict[str, Any]:
    """The options of a trainer that say where things are."""
    work = settings.home.runs / run
    return {
        "rows": work / "rows.parquet",
        "output": work / "model",
        "work": work / "work",
        "mlflow": {"tracking_uri": settings.mlflow_url, "experiment": "lakeloop", "run_name": run},
    }


def _own(training_set_id: str, start: int) -> str:
    """Of this flow run and what it trains on: retried, it finds the folder of its first try and goes on there."""
    return digest(str(flow_run.id or uuid4()), training_set_id, str(start))[:12]


def _pinned(training_set_id: str, objective: ObjectiveName) -> TrainingSet:
    """A set that is there; UnknownTrainingSet, or WrongObjective where it was selected for another one."""
    known = training_set(None, training_set_id)
    if known.objective != objective:
        raise WrongObjective(
            f"training set {training_set_id} was selected for {known.objective}: train with --objective {known.objective}"
        )
    return known
