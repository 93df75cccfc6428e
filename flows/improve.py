"""Improve: the loop. Collect, label, train, release; the next round samples from the new weights."""

from typing import Annotated

from prefect import flow
from pydantic import BaseModel, Field

from flows.collect import collect
from flows.evaluate import Evaluated, evaluate
from flows.label import label
from flows.release import release
from flows.train import train
from tasks.label import current_rubrics
from tasks.progress import Clock


class Round(BaseModel):
    """One turn of the loop."""

    number: int
    run_id: str
    version: int
    training_set_id: str
    rows: int
    evaluation: Evaluated | None
    seconds: dict[str, float]  # by stage


@flow(name="improve", log_prints=True)
async def improve(
    rounds: Annotated[int, Field(ge=1)] = 2,
    problems: dict[str, int] | None = None,
    samples: Annotated[int, Field(ge=2)] = 8,
    max_difficulty: Annotated[float, Field(ge=0, le=1)] = 1.0,
    temperature: Annotated[float, Field(gt=0)] = 1.0,
    evaluate_problems: dict[str, int] | None = None,
    evaluate_samples: Annotated[int, Field(ge=1)] = 1,
    learning_rate: Annotated[float, Field(gt=0)] | None = None,
    seed: int = 0,
) -> list[Round]:
    """Rounds of GRPO from the promoted version: collect, label, train, release, evaluate.

    Args:
        rounds: Turns of the loop.
        problems: Problems per round and kind. Default: 16 search, 4 swe.
        samples: Episodes per problem: a group's baseline needs at least two.
        max_difficulty: Curriculum: only problems up to this difficulty, 0 to 1.
        temperature: Sampling temperature; at 0 every episode of a group would be the same.
        evaluate_problems: Held-out problems after each round. Default: 64 search, 24 swe; {} for none.
        evaluate_samples: Episodes per held-out problem.
        learning_rate: Default: the recipe's.
        seed: Draws the problems; each round draws anew.
    """
    wanted = problems or {"search": 16, "swe": 4}
    rubrics = current_rubrics(wanted)
    done: list[Round] = []
    for number in range(1, rounds + 1):
        clock = Clock()
        with clock("collect"):
            collected = await collect(
                problems=wanted,
                samples=samples,
                seed=seed + number,
                max_difficulty=max_difficulty,
                temperature=temperature,
            )
        with clock("label"):
            label(rubrics=rubrics, run_ids=[collected.run_id])
        with clock("train"):
            trained = await train(
                objective="grpo",
                run_ids=[collected.run_id],
                rubrics=rubrics,
                learning_rate=learning_rate,
                seed=seed + number,
            )
        with clock("release"):
            version = release(
                trained.folder,
                stage="grpo",
                parent=trained.parent,
                training_set_id=trained.training_set_id,
                mlflow_run_id=trained.mlflow_run_id,
            )
        evaluation = None
        if evaluate_problems != {}:
            with clock("evaluate"):
                evaluation = await evaluate(
                    stage=f"round-{number}",
                    problems=evaluate_problems,
                    samples=evaluate_samples,
                    max_difficulty=max_difficulty,
                    temperature=temperature,
                )
        done.append(
            Round(
                number=number,
                run_id=collected.run_id,
                version=version,
                training_set_id=trained.training_set_id,
                rows=trained.rows,
                evaluation=evaluation,
                seconds=clock.seconds,
            )
        )
    return done
