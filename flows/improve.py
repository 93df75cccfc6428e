"""Improve: the loop. Collect, label, train, release; the next round samples from the new weights."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated

from prefect import flow
from pydantic import BaseModel, Field

from flows.collect import collect
from flows.evaluate import Evaluated, evaluate
from flows.label import label
from flows.release import keep_or_withdraw, release
from flows.train import train
from lakehouse.radar import LIMIT
from lakehouse.selection.select import NothingTrainable
from tasks.label import current_rubrics
from tasks.progress import Clock

REMEDIES = {
    "zero_variance_group": "every sample of a problem ended alike: take more problems or samples, or another max_difficulty",
    "singleton_group": "fewer than two samples of a problem could be scored: take more samples, and see why the others failed",
    "not_trainable": 'episodes failed: `lakeloop query "select status, error, count(*) from episodes group by all"` says why',
}


class Round(BaseModel):
    """One turn of the loop. Where no group was trainable there is no version: what was promoted stays."""

    number: int
    run_id: str
    version: int | None = None
    training_set_id: str | None = None
    rows: int = 0
    left_out: dict[str, int] = {}  # where nothing was trained: episodes by why
    evaluation: Evaluated | None = None
    seconds: dict[str, float]  # by stage


class NothingImproved(RuntimeError):
    """No round had anything to train on; the message counts the episodes by why and says what to do."""

    def __init__(self, rounds: Sequence[Round]) -> None:
        reasons = sum((Counter(turn.left_out) for turn in rounds), Counter[str]())
        remedies = [f"{name}: {REMEDIES[name]}" for name in reasons if name in REMEDIES]
        super().__init__(
            f"nothing improved, for no group of any round ({len(rounds)}) could be trained on: {counted(reasons)}. "
            + (". ".join(remedies) or "docs/operations.md says what the reasons mean")
        )


def counted(reasons: Mapping[str, int]) -> str:
    """Episodes by why they are left out, in words."""
    return ", ".join(f"{count} {reason}" for reason, count in reasons.items()) or "no episode landed"


@flow(name="improve", log_prints=True)
async def improve(
    rounds: Annotated[int, Field(ge=1)] = 2,
    problems: dict[str, int] | None = None,
    samples: Annotated[int, Field(ge=2)] = 8,
    max_difficulty: Annotated[float, Field(ge=0, le=1)] = 1.0,
    temperature: Annotated[float, Field(gt=0)] = 1.0,
    max_tokens: Annotated[int, Field(ge=1)] = 96,
    max_turns: Annotated[int, Field(ge=1)] = 6,
    evaluate_problems: dict[str, int] | None = None,
    evaluate_samples: Annotated[int, Field(ge=1)] = 1,
    learning_rate: Annotated[float, Field(gt=0)] | None = None,
    lora: Annotated[int, Field(ge=1)] | None = None,
    max_hack_rate: Annotated[float, Field(ge=0, le=1)] = LIMIT,
    seed: int = 0,
) -> list[Round]:
    """Rounds of GRPO from the promoted version: collect, label, train, release, evaluate.

    A round in which no group is trainable is passed over; where that is so in every round, the run fails and says why.

    Args:
        rounds: Turns of the loop.
        problems: Problems per round and kind. Default: 16 search, 4 swe.
        samples: Episodes per problem: a group's baseline needs at least two.
        max_difficulty: Curriculum: only problems up to this difficulty, 0 to 1.
        temperature: Sampling temperature; at 0 every episode of a group would be the same.
        max_tokens: Tokens per model call.
        max_turns: Model calls per episode.
        evaluate_problems: Held-out problems after each round. Default: 64 search, 24 swe; {} for none.
        evaluate_samples: Episodes per held-out problem.
        learning_rate: Default: the recipe's.
        lora: Train adapters of this rank and merge them. Default: all weights.
        max_hack_rate: A version beyond this share of episodes with a reward hack is not promoted, or taken back, and the
            run ends.
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
                max_tokens=max_tokens,
                max_turns=max_turns,
            )
        with clock("label"):
            label(rubrics=rubrics, run_ids=[collected.run_id])
        try:
            with clock("train"):
                trained = await train(
                    objective="grpo",
                    run_ids=[collected.run_id],
                    rubrics=rubrics,
                    learning_rate=learning_rate,
                    lora=lora,
                    seed=seed + number,
                )
        except NothingTrainable as nothing:
            print(f"round {number} of {rounds} is passed over, no group can be trained on: {counted(nothing.reasons)}")
            skipped = Round(number=number, run_id=collected.run_id, left_out=nothing.reasons, seconds=clock.seconds)
            done.append(skipped)
            continue
        with clock("release"):
            version = await release(
                trained.folder,
                stage="grpo",
                parent=trained.parent,
                training_set_id=trained.training_set_id,
                mlflow_run_id=trained.mlflow_run_id,
                max_hack_rate=max_hack_rate,
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
                    max_tokens=max_tokens,
                    max_turns=max_turns,
                )
            keep_or_withdraw(version, trained.parent, max_hack_rate=max_hack_rate)
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
    if all(turn.version is None for turn in done):
        raise NothingImproved(done)
    return done
