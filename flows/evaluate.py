"""Evaluate: how well the served version solves held-out problems."""

import asyncio
from typing import Annotated

from prefect import flow
from prefect.artifacts import acreate_table_artifact
from pydantic import BaseModel, Field

from flows.collect import PromptFolder, collect
from flows.label import label
from lakehouse.evaluation.exam import Exam
from lakehouse.results import Success, success
from tasks.gate import sat, served
from tasks.label import current_rubrics
from tasks.rollout import load_problems, own_run_id
from tasks.showing import ashow


class Evaluated(BaseModel):
    """Success on the held-out split, per kind of problem."""

    run_id: str
    stage: str
    results: list[Success]


@flow(name="evaluate", flow_run_name="evaluate-{stage}", log_prints=True)
async def evaluate(
    stage: str = "manual",
    problems: dict[str, int] | None = None,
    samples: Annotated[int, Field(ge=1)] = 1,
    temperature: Annotated[float, Field(ge=0)] = 1.0,
    max_tokens: Annotated[int, Field(ge=1)] = 96,
    max_turns: Annotated[int, Field(ge=1)] = 6,
    seed: int = 0,
    max_difficulty: Annotated[float, Field(ge=0, le=1)] = 1.0,
    prompts: PromptFolder | None = None,
) -> Evaluated:
    """Collect on held-out problems, label, and count. The episodes are in the lake and are never trained on.

    The run's id is derived from the version that is served and from what is played: the same again costs nothing, and
    goes on where it was interrupted.

    Args:
        stage: What is evaluated, for people: base, sft, round-1.
        problems: How many of each kind. Default: 64 search, 24 swe.
        samples: Episodes per problem.
        temperature: Sampling temperature of the model.
        max_tokens: Tokens per model call.
        max_turns: Model calls per episode.
        seed: The same seed gives the same problems, and the sampler the same noise.
        max_difficulty: Only problems up to this difficulty, 0 to 1.
        prompts: A folder with prompts of your own in place of the shipped ones, see docs/agents.md.
    """
    asked = {"problems": problems} if problems else {}
    exam = Exam.model_validate(
        asked
        | {
            "samples": samples,
            "temperature": temperature,
            "max_tokens": max_tokens,
            "max_turns": max_turns,
            "seed": seed,
            "max_difficulty": max_difficulty,
            "prompts": prompts,
        }
    )
    await load_problems(list(exam.problems))
    return await sit(exam, stage, served())


async def sit(exam: Exam, stage: str, version: int, *, pinned: bool = False) -> Evaluated:
    """Play what is missing of an exam and judge it. The stack's engine serves `version`, or another one where it is `pinned`."""
    known = sat(version, exam) if version >= 1 else None  # below, nobody knows which weights these are
    run_id = known.run_id if known else own_run_id()
    if known is None or not known.complete:
        await collect(
            problems=exam.problems,
            samples=exam.samples,
            split="eval",
            purpose=f"eval:{stage}",
            seed=exam.seed,
            sampling_seed=exam.seed,
            max_difficulty=exam.max_difficulty,
            temperature=exam.temperature,
            max_tokens=exam.max_tokens,
            max_turns=exam.max_turns,
            prompts=exam.prompts,
            version=version if pinned else None,
            run_id=run_id,
        )
    await asyncio.to_thread(label, rubrics=current_rubrics(exam.problems), run_ids=[run_id])
    results = success(None, run_id)
    await ashow(
        acreate_table_artifact,
        key="evaluation",
        table=[
            {
                "problem kind": r.problem_kind,
                "success": None if r.rate is None else round(r.rate, 3),
                "n": r.n,
                "unscored": r.unscored,
            }
            for r in results
        ],
        description=f"Held-out success: {stage}",
    )
    return Evaluated(run_id=run_id, stage=stage, results=results)
