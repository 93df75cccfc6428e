"""Evaluate: how well the served version solves held-out problems."""

from typing import Annotated

from prefect import flow
from prefect.artifacts import acreate_table_artifact
from pydantic import BaseModel, Field

from flows.collect import collect
from flows.label import label
from lakehouse.results import Success, success
from tasks.label import current_rubrics


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
) -> Evaluated:
    """Collect on held-out problems, label, and count. The episodes are in the lake and are never trained on.

    Args:
        stage: What is evaluated, for people: base, sft, round-1.
        problems: How many of each kind. Default: 64 search, 24 swe.
        samples: Episodes per problem.
        temperature: Sampling temperature of the model.
        max_tokens: Tokens per model call.
        max_turns: Model calls per episode.
        seed: The same seed gives the same problems.
        max_difficulty: Only problems up to this difficulty, 0 to 1.
    """
    wanted = problems or {"search": 64, "swe": 24}
    collected = await collect(
        problems=wanted,
        samples=samples,
        split="eval",
        purpose=f"eval:{stage}",
        seed=seed,
        max_difficulty=max_difficulty,
        temperature=temperature,
        max_tokens=max_tokens,
        max_turns=max_turns,
    )
    label(rubrics=current_rubrics(wanted), run_ids=[collected.run_id])
    results = success(None, collected.run_id)
    await acreate_table_artifact(
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
    return Evaluated(run_id=collected.run_id, stage=stage, results=results)
