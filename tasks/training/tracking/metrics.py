"""What a step measured: computed once, written to metrics.jsonl and, live, to MLflow."""

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any, TextIO

from tasks.training.data.mapped import Row
from tasks.training.diagnosis import history
from tasks.training.step import histograms
from tasks.training.tracking.mlflow_run import MlflowRun
from tasks.training.tracking.usage import Usage

USAGE_S = 5.0
NO_MEANS = {
    "loss",
    "normaliser",
    "tokens",
    "positions",
    "computed",
    "clip_fraction",
    "sample_weight",
    "sample_weight_squared",
    "positive_tokens",
    "negative_tokens",
}
NO_MEANS |= {"positive_advantage", "negative_advantage"}


def of_step(sums: Mapping[str, float], chosen: Sequence[Row], version: int) -> dict[str, Any]:
    """Per-token means from a step's sums, under their MLflow names; `sums` as made by `passes.accumulate`.

    Values are numbers, and lists of counts for histograms (`histograms.EDGES`).
    """
    tokens = sums["tokens"]
    found: dict[str, Any] = {
        "loss": sums["loss"] / sums["normaliser"],
        "tokens_trained": tokens,
        "tokens_seen": sums["positions"],
        "tokens_computed": sums["computed"],  # fewer where rows share a prefix
    }
    policy = "ratio" in sums
    alike = {name for name in sums if name not in NO_MEANS and not name.startswith(histograms.PREFIX)}
    found |= {name: sums[name] / tokens for name in sorted(alike) if policy or name != "engine_gap"}
    if not policy:
        return found
    if "sample_weight" in sums:
        # Kish: the number of equally weighted tokens worth as much, as a share of all tokens
        squares = sums["sample_weight_squared"] * tokens
        found["effective_sample_size"] = sums["sample_weight"] ** 2 / squares if squares else 0.0
    if "clip_fraction" in sums:  # of the tokens that could lose a gradient: the others have none
        found["clip_fraction"] = sums["clip_fraction"] / max(1.0, sums["positive_tokens"] + sums["negative_tokens"])
    for sign in ("positive", "negative"):
        if f"{sign}_tokens" in sums:
            found[f"advantage/{sign}_share"] = sums[f"{sign}_tokens"] / tokens
            found[f"advantage/{sign}_mean"] = sums[f"{sign}_advantage"] / max(1.0, sums[f"{sign}_tokens"])
    # The smaller of two: a recipe may scale negative advantages to 0, and a critic makes advantages of what is 0 in the rows.
    given = sum(int((row.advantages == 0).sum()) for row in chosen) / tokens
    found["advantage/zero_share"] = min(given, 1 - (sums["positive_tokens"] + sums["negative_tokens"]) / tokens)
    found["staleness"] = fmean(version - row.version for row in chosen)
    found |= rewards(chosen)
    return found | histograms.gathered(sums)


def of_rows(rows: Iterable[Row], version: int, *, policy: bool) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """Of the whole training set, before the first step: its metrics, and one entry per group, least spread first."""
    ages: list[int] = []
    tokens = 0
    groups: dict[str, list[tuple[str, float, float, int]]] = defaultdict(list)
    for row in rows:
        trained = len(row.positions)
        tokens += trained
        ages.append(version - row.version)
        groups[row.group].append((row.kind, row.reward, float(row.advantages.mean()), trained))
    found: dict[str, float] = {"rows": len(ages), "rows_tokens": tokens}
    told = [_group(name, held) for name, held in groups.items()] if policy else []
    if policy:
        found["staleness/mean"], found["staleness/max"] = fmean(ages), max(ages)
        found["groups"] = len(told)
        found["groups_without_signal"] = sum(one["advantage_high"] == one["advantage_low"] == 0 for one in told)
        found["advantage/group_spread"] = fmean(one["advantage_high"] - one["advantage_low"] for one in told)
    return found, sorted(told, key=lambda one: (one["advantage_high"] - one["advantage_low"], one["group"]))


def rewards(rows: Iterable[Row]) -> dict[str, float]:
    """Mean reward by kind of problem."""
    by_kind: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        by_kind[row.kind or "all"].append(row.reward)
    return {f"reward/{kind}": fmean(found) for kind, found in sorted(by_kind.items())}


def _group(name: str, held: list[tuple[str, float, float, int]]) -> dict[str, Any]:
    kinds, rewarded, advantages, tokens = zip(*held, strict=True)
    return {
        "group": name,
        "kind": kinds[0],
        "rows": len(held),
        "tokens": sum(tokens),
        "reward": fmean(rewarded),
        "reward_deviation": pstdev(rewarded),
        "advantage_low": min(advantages),
        "advantage_high": max(advantages),
    }


class MetricsLog:
    """One JSON object per step in `metrics.jsonl`; MLflow gets the same numbers. For the first rank only."""

    def __init__(self, work: Path, run: MlflowRun | None, *, resumed_at: int) -> None:
        self.run = run
        self._work = work
        self._usage = Usage()
        self._used_at = time.monotonic()
        file = work / "metrics.jsonl"
        self.history = [entry for entry in history(file) if entry["step"] <= resumed_at] if resumed_at else []
        self._file = _begun(file, self.history)

    @property
    def mlflow_run(self) -> str | None:
        return self.run.run_id if self.run else None

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """`step` counts from 1; 0 is the look before the first update."""
        entry = {"step": step, "at": round(time.time(), 3), **values}
        self.history.append(entry)
        self._file.write(json.dumps(entry) + "\n")
        self._file.flush()
        if self.run:
            self.run.log(step, _numbers(values) | self._use())

    def look(self, values: Mapping[str, Any], groups: Sequence[Mapping[str, Any]]) -> None:
        """The training set before the first step, and its groups, for `groups.json`."""
        self.write(0, values)
        if groups:
            (self._work / "groups.json").write_text(json.dumps(groups, indent=0))

    def close(self, status: str) -> int:
        """Ends the run; returns how much MLflow has not got so far."""
        self._file.close()
        return self.run.finish(status) if self.run else 0

    def _use(self) -> dict[str, float]:
        """The machine's use, at the first step and then every few seconds."""
        if len(self.history) > 1 and time.monotonic() - self._used_at < USAGE_S:
            return {}
        self._used_at = time.monotonic()
        return self._usage.metrics()


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if isinstance(value, int | float)}


def _begun(file: Path, entries: Iterable[Mapping[str, Any]]) -> TextIO:
    """The file with these entries alone, for more. At no moment are there fewer on the disk: a kill loses none."""
    partial = file.with_name(file.name + ".partial")
    with partial.open("w", encoding="utf-8") as draft:
        draft.writelines(json.dumps(entry) + "\n" for entry in entries)
        draft.flush()
        os.fsync(draft.fileno())
    partial.replace(file)
    return file.open("a", encoding="utf-8")
