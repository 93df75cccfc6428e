"""Whole training runs for the benchmark: ours and TRL's, each the program that a user starts, in a process of its own."""

import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import peers
from benchmarks.report import middle
from benchmarks.train_data import Recorded, Shape, write_rows

ROOT = Path(__file__).resolve().parent.parent
TRL = "trl==1.16.0"
MICRO_BATCH = 2048  # tokens computed in one of our forward passes
LIMIT_S = 3600
ALIKE = {  # both run as `lakeloop train` starts its trainer: memory is kept, and threads that wait do not spin
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 36),
    "OMP_WAIT_POLICY": "PASSIVE",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
}


@dataclass(frozen=True)
class Run:
    """What one run took. The first step warms up and is left out of `step_s`."""

    first_step_s: float  # from the start of the process
    steps: list[float]
    peak_mib: float  # of the process, with all that it imported

    @property
    def step_s(self) -> float:
        return middle(self.steps[1:] or self.steps)


def ours(folder: Path, model: Path, held: Recorded, shape: Shape, **settings: Any) -> Run:
    """`python -m tasks.training` on the recorded rows, one step per `shape.rows` of them."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_rows(held, folder / "rows.parquet")
    config = {
        "objective": "grpo",
        "model": str(model),
        "rows": str(folder / "rows.parquet"),
        "output": str(folder / "model"),
        "learning_rate": 1e-6,
        "minibatch": shape.rows,
        "micro_batch_tokens": max(MICRO_BATCH, shape.longest_row),
        "max_seq_len": max(MICRO_BATCH, shape.longest_row),
        "proximal": "behaviour",
        "agreement_bound": None,
        "device": "cpu",
    }
    (folder / "config.json").write_text(json.dumps(config | settings))
    began = time.time()
    peak = _run([sys.executable, "-m", "tasks.training", "--config", str(folder / "config.json")], folder / "log")
    lines = [json.loads(line) for line in (folder / "model.work" / "metrics.jsonl").read_text().splitlines()]
    ends = [line["at"] for line in lines if line["step"] > 0]
    return Run(ends[0] - began, _gaps([began, *ends]), peak)


def trl(folder: Path, model: Path, held: Recorded, shape: Shape, micro_batch: int) -> Run:
    """TRL's GRPO trainer in an environment of its own, with the same torch and transformers."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    python = peers.environment(
        "trl", [*(f"{name}=={version(name)}" for name in ("torch", "transformers", "accelerate")), TRL]
    )
    (folder / "recorded.json").write_text(held.model_dump_json())
    steps = len(held.completions) // shape.rows
    told = {"model": str(model), "groups": shape.groups, "steps": steps, "longest": shape.longest}
    (folder / "told.json").write_text(json.dumps(told | {"micro_batch": micro_batch, "threads": os.cpu_count() or 1}))
    began = time.time()
    _run([str(python), str(ROOT / "benchmarks" / "train_trl.py"), str(folder)], folder / "log")
    found = json.loads((folder / "found.json").read_text())
    return Run(found["first_at"] - began, found["steps"], found["peak_mib"])


def _gaps(ends: list[float]) -> list[float]:
    return [after - before for before, after in itertools.pairwise(ends)]


def _run(command: list[str], log: Path) -> float:
    """Runs to the end; MiB of memory that the process had at most. RuntimeError with its last lines where it fails."""
    environment = os.environ | ALIKE
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT)
        until = time.monotonic() + LIMIT_S
        while True:
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
            if ended:
                break
            if time.monotonic() > until:
                process.kill()
            time.sleep(0.05)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        tail = log.read_text(errors="replace")[-1500:]
        raise RuntimeError(f"{' '.join(command[:3])} ended with status {process.returncode}:\n{tail}")
    return usage.ru_maxrss / 1024
