"""The training benchmarks' parts that need no peer: that the GPU script runs, on the CPU, and what a run's clock says."""

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.train_data import Shape, recorded, write_rows

ROOT = Path(__file__).parents[1]


def test_the_gpu_script_runs_on_the_cpu_at_a_toy_size() -> None:
    command = [sys.executable, "-m", "benchmarks.gpu", "--quick"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr
    toy = json.loads(ended.stdout)["sizes"]["toy"]
    assert toy["tokens_per_s"] > toy["computed_tokens_per_s"] > 0
    assert toy["model_tflops"] > 0


def test_recorded_groups_are_the_same_for_the_same_seed_and_share_their_prompt(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    shape = Shape(groups=2, size=4, prompt=9, shortest=2, longest=5)
    held = recorded(shape, 100, steps=3)
    assert held == recorded(shape, 100, steps=3) != recorded(shape, 100, steps=3, seed=1)
    write_rows(held, tmp_path / "rows.parquet")
    rows = pq.read_table(tmp_path / "rows.parquet").to_pylist()
    assert len(rows) == 24
    assert len({tuple(row["input_ids"][:9]) for row in rows}) == 6
    assert sum(sum(row["loss_mask"]) for row in rows) == held.tokens
