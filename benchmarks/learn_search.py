"""The search task of `lakeloop bench learn`: warm start, rollouts, objectives, evaluations, on a stack that is up."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import say
from flows.collect import collect
from flows.evaluate import evaluate
from flows.label import label
from flows.release import release
from flows.train import train
from lakehouse import connect
from tasks.release import promote, serve
from tasks.serving import models
from tasks.stack import Settings
from tasks.training.objectives import ObjectiveName

SEEDS = (0, 1, 2)
WARM = "sft"  # the warm start alone: what every other objective starts from
OBJECTIVES: tuple[ObjectiveName, ...] = ("grpo", "gspo", "cispo", "rloo")
EASY = 0.35  # as the quickstart
FULL: dict[str, Any] = {"demonstrations": 120, "problems": 60, "samples": 5, "held_out": 64, "evaluate_samples": 2}
QUICK: dict[str, Any] = {"demonstrations": 120, "problems": 16, "samples": 5, "held_out": 16, "evaluate_samples": 1}

Outcomes = dict[str, list[float]]  # held-out problem -> outcome of each of its episodes


async def run(settings: Settings, *, quick: bool) -> dict[int, dict[str, Outcomes]]:
    """Held-out outcomes by seed and objective."""
    kept = Kept(settings.home.root / ("learn-quick.json" if quick else "learn.json"))
    sizes = QUICK if quick else FULL
    base = await release(models.resolve(settings.model, settings.home), stage="base")
    for seed in SEEDS[:1] if quick else SEEDS:
        await one_seed(seed, base, sizes, kept)
    return kept.seeds()


class Kept:
    """What is done, by seed and name, in a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._held: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}

    def get(self, seed: int, name: str) -> Any:
        return self._held.get(str(seed), {}).get(name)

    def put(self, seed: int, name: str, value: Any) -> None:
        self._held.setdefault(str(seed), {})[name] = value
        self._file.write_text(json.dumps(self._held))

    def seeds(self) -> dict[int, dict[str, Outcomes]]:
        """Outcomes of every objective of the seeds that are whole."""
        wanted = (WARM, *OBJECTIVES)
        return {
            int(seed): {name: held[f"outcomes/{name}"] for name in wanted}
            for seed, held in self._held.items()
            if all(f"outcomes/{name}" in held for name in wanted)
        }


async def one_seed(seed: int, base: int, sizes: dict[str, Any], kept: Kept) -> None:
    """Warm start, rollouts, and each objective from there; what is kept is not done again."""
    warm = kept.get(seed, "warm")
    if warm is None:
        say(f"seed {seed}: warm start on {sizes['demonstrations']} demonstrations")
        serve(base)
        promote(base)
        shown = await collect(
            problems={"search": sizes["demonstrations"]},
            samples=1,
            max_difficulty=EASY,
            agent="expert",
            purpose="demonstration",
            seed=seed,
        )
        label(run_ids=[shown.run_id])
        taught = await train(objective="sft", run_ids=[shown.run_id], parent=base, seed=seed)
        warm = await release(
            taught.folder,
            stage="sft",
            parent=base,
            training_set_id=taught.training_set_id,
            mlflow_run_id=taught.mlflow_run_id,
        )
        kept.put(seed, "warm", warm)
    if kept.get(seed, f"outcomes/{WARM}") is None:
        kept.put(seed, f"outcomes/{WARM}", await held_out(f"{WARM}-{seed}", sizes))
    rollouts = kept.get(seed, "rollouts")
    if rollouts is None:
        say(f"seed {seed}: {sizes['problems']} problems, {sizes['samples']} samples each")
        collected = await collect(
            problems={"search": sizes["problems"]}, samples=sizes["samples"], max_difficulty=EASY, seed=100 + seed
        )
        label(run_ids=[collected.run_id])
        rollouts = collected.run_id
        kept.put(seed, "rollouts", rollouts)
    for name in OBJECTIVES:
        if kept.get(seed, f"outcomes/{name}") is None:
            trained = await train(objective=name, run_ids=[rollouts], parent=warm, seed=seed)
            await release(
                trained.folder,
                stage=name,
                parent=warm,
                training_set_id=trained.training_set_id,
                mlflow_run_id=trained.mlflow_run_id,
            )
            kept.put(seed, f"outcomes/{name}", await held_out(f"{name}-{seed}", sizes))


async def held_out(stage: str, sizes: dict[str, Any]) -> Outcomes:
    """Evaluate what is served. The same problems for every stage and seed."""
    done = await evaluate(
        stage=stage, problems={"search": sizes["held_out"]}, samples=sizes["evaluate_samples"], max_difficulty=EASY
    )
    with connect() as connection:
        rows = connection.execute(
            """
            select problem_id, list(outcome::double) filter (where outcome is not null) as outcomes
            from episodes
            inner join latest_rewards using (episode_id)
            where run_id = $1
            group by problem_id
            order by problem_id
            """,
            [done.run_id],
        ).fetchall()
    found: Outcomes = {problem: outcomes for problem, outcomes in rows if outcomes}
    say(f"{stage}: {np.mean([np.mean(one) for one in found.values()]):.1%} of {sum(map(len, found.values()))} episodes")
    return found
