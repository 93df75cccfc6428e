"""Quickstart: from untrained to better than its demonstrations, on one machine."""

from pathlib import Path
from typing import Annotated

from prefect import flow
from pydantic import BaseModel, Field

from flows.collect import collect
from flows.evaluate import Evaluated, evaluate
from flows.improve import Round, improve
from flows.label import label
from flows.release import release
from flows.train import train
from tasks.progress import Clock


class Outcome(BaseModel):
    """What a quickstart did. `seconds` by stage."""

    versions: list[int]  # base, warm start, one per round that trained
    run_ids: list[str]
    evaluations: list[Evaluated]
    rounds: list[Round]
    seconds: dict[str, float]


@flow(name="quickstart", log_prints=True)
async def quickstart(
    folder: Path,
    rounds: Annotated[int, Field(ge=1)] = 2,
    demonstrations: dict[str, int] | None = None,
    problems: dict[str, int] | None = None,
    held_out: dict[str, int] | None = None,
    samples: Annotated[int, Field(ge=2)] = 8,
    evaluate_samples: Annotated[int, Field(ge=1)] = 1,
    max_difficulty: Annotated[float, Field(ge=0, le=1)] = 0.4,
    max_tokens: Annotated[int, Field(ge=1)] = 96,
    max_turns: Annotated[int, Field(ge=1)] = 6,
    warm_start_rate: Annotated[float, Field(gt=0)] | None = None,
    learning_rate: Annotated[float, Field(gt=0)] | None = None,
    seed: int = 0,
) -> Outcome:
    """Evaluate the base model, warm-start it on recorded demonstrations, then improve it by rounds of GRPO.

    Args:
        folder: The base model, in Hugging Face format.
        rounds: Rounds of GRPO.
        demonstrations: Demonstrated problems of each kind. Default: 240 search, 60 swe.
        problems: Problems per round and kind. Default: 24 search, 6 swe.
        held_out: Evaluation problems of each kind. Default: 64 search, 24 swe.
        samples: Episodes per problem in a round.
        evaluate_samples: Episodes per held-out problem.
        max_difficulty: Only problems up to this difficulty, 0 to 1.
        max_tokens: Tokens per model call.
        max_turns: Model calls per episode.
        warm_start_rate: Learning rate of the warm start. Default: the recipe's.
        learning_rate: Learning rate of the rounds. Default: the recipe's.
        seed: Draws the problems.
    """
    clock = Clock()
    held_out = held_out or {"search": 64, "swe": 24}
    demonstrations = demonstrations or {"search": 240, "swe": 60}

    async def examine(stage: str) -> Evaluated:
        return await evaluate(
            stage=stage,
            problems=held_out,
            samples=evaluate_samples,
            max_difficulty=max_difficulty,
            max_tokens=max_tokens,
            max_turns=max_turns,
        )

    with clock("release"):
        base = await release(folder, stage="base")
    with clock("evaluate"):
        evaluations = [await examine("base")]
    with clock("warm_start"):
        shown = await collect(
            problems=demonstrations,
            samples=1,
            agent="expert",
            purpose="demonstration",
            seed=seed,
            max_difficulty=max_difficulty,
            max_tokens=max_tokens,
            max_turns=max_turns,
        )
        label(run_ids=[shown.run_id])
        taught = await train(
            objective="sft", run_ids=[shown.run_id], parent=base, learning_rate=warm_start_rate, seed=seed
        )
        warm = await release(
            taught.folder,
            stage="sft",
            parent=base,
            training_set_id=taught.training_set_id,
            mlflow_run_id=taught.mlflow_run_id,
        )
    with clock("evaluate"):
        evaluations.append(await examine("warm-start"))
    done = await improve(
        rounds=rounds,
        problems=problems or {"search": 24, "swe": 6},
        samples=samples,
        max_difficulty=max_difficulty,
        max_tokens=max_tokens,
        max_turns=max_turns,
        evaluate_problems=held_out,
        evaluate_samples=evaluate_samples,
        learning_rate=learning_rate,
        seed=seed,
    )
    for turn in done.rounds:
        clock.add(turn.seconds)
        if turn.evaluation:
            evaluations.append(turn.evaluation)
    return Outcome(
        versions=[base, warm, *(turn.version for turn in done.rounds if turn.version is not None)],
        run_ids=[shown.run_id, *(e.run_id for e in evaluations), *done.run_ids],
        evaluations=evaluations,
        rounds=done.rounds,
        seconds=clock.seconds,
    )
