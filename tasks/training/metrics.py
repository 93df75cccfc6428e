"""What a step measured: computed once, written to metrics.jsonl and, live, to MLflow."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

from tasks.training.data import Row
from tasks.training.mlflow_run import MlflowRun


def of_step(sums: dict[str, float], chosen: Sequence[Row], version: int) -> dict[str, float]:
    """Per-token means from a step's sums, under their MLflow names; `sums` as made by `step.accumulate`."""
    tokens = sums["tokens"]
    found = {"loss": sums["loss"] / tokens, "tokens_trained": tokens, "tokens_seen": sums["positions"]}
    found |= {name: sums[name] / tokens for name in ("entropy", "logprob")}
    if "ratio" not in sums:
        return found
    for name in ("engine_gap", "ratio", "clip_fraction", "kl_to_proximal", "importance_weight", "importance_truncated"):
        found[name] = sums[name] / tokens
    # Kish: the number of equally weighted tokens worth as much, as a share of all tokens
    found["effective_sample_size"] = sums["importance_weight"] ** 2 / (sums["importance_weight_squared"] * tokens)
    for sign in ("positive", "negative"):
        found[f"advantage/{sign}_share"] = sums[f"{sign}_tokens"] / tokens
        found[f"advantage/{sign}_mean"] = sums[f"{sign}_advantage"] / max(1.0, sums[f"{sign}_tokens"])
    found["staleness"] = sum(version - row.version for row in chosen) / len(chosen)
    return found


class MetricsLog:
    """One JSON object per step in `metrics.jsonl`; MLflow gets the same in batches. For the first rank only."""

    def __init__(self, work: Path, run: MlflowRun | None, *, resumed_at: int) -> None:
        self._run = run
        file = work / "metrics.jsonl"
        kept = [line for line in _lines(file) if json.loads(line)["step"] <= resumed_at] if resumed_at else []
        self._file = file.open("w", encoding="utf-8")
        self._file.writelines(line + "\n" for line in kept)

    @property
    def mlflow_run(self) -> str | None:
        return self._run.run_id if self._run else None

    def write(self, step: int, values: dict[str, float]) -> None:
        """`step` counts from 1; 0 is the look before the first update."""
        self._file.write(json.dumps({"step": step, "at": round(time.time(), 3), **values}) + "\n")
        self._file.flush()
        if self._run:
            self._run.log(step, values)

    def close(self, status: str) -> int:
        """Sends the rest; returns how many values MLflow never got."""
        self._file.close()
        return self._run.finish(status) if self._run else 0


def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []
