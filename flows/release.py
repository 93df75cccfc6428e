"""Release: weights become the served version."""

import asyncio
from pathlib import Path
from typing import Annotated, Literal

from prefect import flow
from pydantic import Field

from flows.gate import gate
from lakehouse.evaluation.policy import read
from lakehouse.radar import LIMIT
from tasks.describe import describe
from tasks.events import tell
from tasks.gate import NothingToDecide
from tasks.registry.moves import Expected
from tasks.registry.versions import CHAMPION
from tasks.release import NotPromoted, admit, deploying, promote, register, serve, unmoved
from tasks.serving.engine import Swap
from tasks.stack.settings import Settings


@flow(name="release", log_prints=True)
async def release(
    folder: Path,
    stage: str = "grpo",
    parent: int | None = None,
    training_set_id: str | None = None,
    mlflow_run_id: str | None = None,
    max_hack_rate: Annotated[float, Field(ge=0, le=1)] | None = None,
    policy: str | None = None,
    alias: Literal["champion", "challenger"] = "champion",
    swap: Swap = "keep",
) -> int:
    """Register the weights, reload the engine, prove that it serves them, and move `champion`. Returns the version.

    Args:
        folder: Model folder in Hugging Face format, as the trainer left it.
        stage: What kind of weights: base, sft, grpo.
        parent: The version these were trained from.
        training_set_id: What they were trained on.
        mlflow_run_id: The MLflow run that trained them.
        max_hack_rate: Not promoted beyond this share of episodes in which the radar saw a reward hack; 1 lets all pass.
            Default: 0.05, or what the policy says.
        policy: A gate policy, shipped (default, strict) or a TOML file: the version is compared with the champion first, and
            only promoted where it passes. Default: the radar alone.
        alias: What to move. A loop moves challenger step by step, and leaves champion to the gate.
        swap: What becomes of calls in flight: keep (they go on with the new weights), wait (they end first), abort.
    """
    if policy is not None:
        if max_hack_rate is not None:
            raise ValueError("max_hack_rate is for a release without a policy: with one, its rules about hacks hold")
        read(policy)  # what is wrong with it is said before anything is registered
    version = await asyncio.to_thread(
        register, folder, stage=stage, parent=parent, training_set_id=training_set_id, mlflow_run_id=mlflow_run_id
    )
    await asyncio.to_thread(describe, version, return_state=True)
    examined = "no" if policy is None and alias == CHAMPION else "yes"
    tell("version.registered", f"version.{Settings().model_name}.{version}", {"version": version}, examined=examined)
    expected: Expected = "any"
    if policy is None:
        await asyncio.to_thread(admit, version, max_hack_rate=LIMIT if max_hack_rate is None else max_hack_rate)
    else:
        expected = await _through_the_gate(version, policy)
    await asyncio.to_thread(_put_out, version, alias, swap, expected if alias == CHAMPION else "any")
    await asyncio.to_thread(describe, version, return_state=True)  # with its gate and its proof
    return version


async def _through_the_gate(version: int, policy: str) -> int | None:
    """The champion that it was compared with; None where there is none."""
    try:
        decision = await gate(version, policy=policy)
    except NothingToDecide:
        return version  # the same weights again: it is the champion
    if not decision.passed:
        raise NotPromoted(
            f"{decision.name} version {version} is not promoted, by decision {decision.gate_id}: {'; '.join(decision.reasons)}"
        )
    return decision.champion


def _put_out(version: int, alias: str, swap: Swap, expected: Expected) -> None:
    with deploying():
        if not isinstance(expected, str):  # while it was examined, another one may have been promoted
            unmoved(version, expected)
        serve(version, swap=swap)
        promote(version, alias, expected=expected)
