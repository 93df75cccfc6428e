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


def test_the_gpu_script_counts_shared_tokens_once_and_the_head_where_a_token_is_scored() -> None:
    import numpy as np
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from benchmarks.gpu import work_of
    from tasks.training.data.batch import batch_of
    from tasks.training.data.mapped import Row

    told = LlamaConfig(
        vocab_size=10, hidden_size=8, num_hidden_layers=3, num_attention_heads=2, intermediate_size=16,
        num_key_value_heads=1,
    )  # fmt: skip
    prompt = [1, 2, 3, 4]
    values = np.zeros(2, np.float32)
    rows = [
        Row(str(i), np.array(prompt + own), np.array([3, 4]), values, values, 1)
        for i, own in enumerate([[5, 6], [7, 8]])
    ]
    layer = 8 * 8 + 2 * 8 * 4 + 8 * 8 + 3 * 8 * 16  # query, key and value, output, feed-forward
    # of the tree: 8 tokens, each at 1 to 6 places with itself; scored after the prompt, and after each row's first own token
    places, scored = 1 + 2 + 3 + 4 + 2 * (5 + 6), 3
    expected = 6 * (3 * layer * 8 + 10 * 8 * scored) + 12 * 3 * 8 * places
    shared = batch_of([0, 1], rows, torch.device("cpu"), 4)
    assert work_of(LlamaForCausalLM(told), shared) == expected


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
