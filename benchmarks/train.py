"""The trainer against TRL's GRPO trainer, plain Transformers and the machine's matrix rate: `lakeloop bench train`.

Both trainers are whole programs on the same model, sequences, batch and cores, one after the other in turns; TRL is handed the
recorded completions through its own `rollout_func` and samples nothing. `--quick` uses `tiny`, the whole SmolLM2-135M.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.report import arguments, middle, say, tell
from benchmarks.train_data import Shape, recorded
from benchmarks.train_runs import ROOT, Run, ours, trl
from lakehouse.home import home
from tasks.serving.models import resolve

SHAPE = Shape(groups=2, size=8, prompt=256, shortest=16, longest=128)
QUICK = Shape(groups=2, size=8, prompt=128, shortest=16, longest=64)


def against_trl(folder: Path, model: Path, vocabulary: int, *, quick: bool) -> dict[str, Any]:
    shape, steps, rounds = (QUICK, 4, 1) if quick else (SHAPE, 3, 2)
    held = recorded(shape, vocabulary, steps)
    runs: dict[str, list[Run]] = {"ours": [], "unshared": [], "trl": []}
    for number in range(rounds):
        say(f"against TRL: round {number + 1} of {rounds}")
        runs["ours"].append(ours(folder / "ours", model, held, shape))
        runs["trl"].append(trl(folder / "trl", model, held, shape, micro_batch=shape.size))
        runs["unshared"].append(ours(folder / "unshared", model, held, shape, shared_prefix=None))
    took = {name: [one.step_s for one in of_name] for name, of_name in runs.items()}
    peak = {name: max(one.peak_mib for one in of_name) for name, of_name in runs.items()}
    return {
        "vs_trl_tokens_per_s": middle([t / o for t, o in zip(took["trl"], took["ours"], strict=True)]),
        "vs_trl_tokens_per_s_unshared": middle([t / o for t, o in zip(took["trl"], took["unshared"], strict=True)]),
        "vs_trl_peak_memory": peak["ours"] / peak["trl"],
        "trained_tokens_per_s": {name: held.tokens / steps / middle(values) for name, values in took.items()},
        "peak_mib": peak,
        "first_step_s": middle([one.first_step_s for one in runs["ours"]]),
        "trl_first_step_s": middle([one.first_step_s for one in runs["trl"]]),
        "shape": shape.model_dump(),
    }


def memory(folder: Path, model: Path, vocabulary: int, *, quick: bool) -> dict[str, float]:
    """Peak MiB of a run whose forward passes hold one row of so many tokens, half of them trained."""
    found = {}
    for length in (256, 1024) if quick else (256, 512, 1024, 2048):
        say(f"memory: rows of {length} tokens")
        shape = Shape(groups=2, size=1, prompt=length // 2, shortest=length // 2, longest=length // 2)
        held = recorded(shape, vocabulary, steps=1)
        found[str(length)] = ours(folder / "memory", model, held, shape, micro_batch_tokens=length).peak_mib
    return found


def checkpoints(folder: Path, model: Path, vocabulary: int) -> float:
    """What a checkpoint adds to a step, as a share of it: steps with one against steps without in the same run."""
    say("checkpoints")
    held = recorded(QUICK, vocabulary, steps=9)
    steps = ours(folder / "checkpoints", model, held, QUICK, checkpoint_every=2).steps
    after, without = (
        steps[2::2],
        steps[1::2],
    )  # the metrics of step 2 are written before its checkpoint, so step 3 has its cost
    return middle(after) / middle(without) - 1


def passes(model: Path, *, quick: bool) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.train_passes", str(model), "quick" if quick else "whole"]
    ended = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def main() -> None:
    quick = arguments(__doc__).quick
    name = "tiny" if quick else "smollm2"
    model = resolve(name, home())
    vocabulary = json.loads((model / "config.json").read_text())["vocab_size"]
    home().cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home().cache, prefix="bench-train-") as made:
        folder = Path(made)
        found = against_trl(folder, model, vocabulary, quick=quick) | passes(model, quick=quick)
        found["memory_mib"] = memory(folder, model, vocabulary, quick=quick)
        found["checkpoint_share"] = checkpoints(folder, model, vocabulary)
    tell({"model": name} | rounded(found))


def rounded(found: Any) -> Any:
    if isinstance(found, dict):
        return {name: rounded(value) for name, value in found.items()}
    return round(found, 3) if isinstance(found, float) else found


if __name__ == "__main__":
    main()
