"""Forward and backward passes in one process, taking turns: `python -m benchmarks.train_passes MODEL QUICK`.

Prints `overhead_vs_plain`, `prefix_gain` and `fraction_of_matmul_rate` as one JSON object.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_utils import PreTrainedModel

from benchmarks.report import middle, say
from benchmarks.train_data import Shape, recorded
from tasks.training.data.batch import batch_of
from tasks.training.data.mapped import Row
from tasks.training.model import attention, scoring

GROUPS = (4, 8, 16)
CPU = torch.device("cpu")


def loaded(folder: Path, way: str) -> PreTrainedModel:
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation=way)
    if way == attention.NAME:
        scoring.install(model)
    model.train()
    return model


def in_turns(sides: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each side in each round, after one round to warm up."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, work in sides.items():
            began = time.perf_counter()
            work()
            if number:
                found[name].append(time.perf_counter() - began)
    return found


def rows_of(shape: Shape, vocabulary: int, trained_from: int) -> list[Row]:
    held = recorded(shape, vocabulary, steps=1)
    rows = []
    for i, completion in enumerate(held.completions):
        ids = np.array(held.prompts[i // held.size] + completion)
        positions = np.arange(trained_from, len(ids) - 1)
        values = np.full(len(positions), -1.0, np.float32)
        rows.append(Row(str(i), ids, positions, values, -values, 1))
    return rows


def step(model: PreTrainedModel, rows: list[Row], shared: int | None) -> None:
    """What the trainer does with a micro-batch: pack, log-probs with entropy, a clipped objective, backward."""
    batch = batch_of(list(range(len(rows))), rows, CPU, shared)
    logprobs, entropy = scoring.logprobs(model, batch)
    ratio = (logprobs - logprobs.detach()).exp()
    gain = torch.minimum(ratio * batch.advantages, ratio.clamp(0.8, 1.28) * batch.advantages)
    torch.autograd.backward(-gain.sum() / len(gain))
    float(entropy.detach().sum())
    model.zero_grad()


def plain_packed(model: PreTrainedModel, rows: list[Row]) -> None:
    """Plain Transformers on the packed sequence: it finds the rows by their position ids."""
    ids = torch.from_numpy(np.concatenate([row.ids for row in rows]))[None]
    places = torch.from_numpy(np.concatenate([np.arange(len(row.ids)) for row in rows]))[None]
    model(input_ids=ids, position_ids=places, labels=ids, use_cache=False).loss.backward()
    model.zero_grad()


def plain_rows(model: PreTrainedModel, rows: list[Row]) -> None:
    """Plain Transformers on the same rows one below the other, which is possible because they are of one length."""
    ids = torch.from_numpy(np.stack([row.ids for row in rows]))
    model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    model.zero_grad()


def overhead(folder: Path, vocabulary: int, quick: bool) -> dict[str, float]:
    """Every token trained and nothing shared, rows of one length: where the plain way is at its best."""
    shape = Shape(groups=4, size=1, prompt=64 if quick else 192, shortest=64, longest=64)
    rows = rows_of(shape, vocabulary, trained_from=0)
    own, plain = loaded(folder, attention.NAME), loaded(folder, "sdpa")
    sides = {
        "ours": lambda: step(own, rows, None),
        "packed": lambda: plain_packed(plain, rows),
        "rows": lambda: plain_rows(plain, rows),
    }
    found = {name: min(took) for name, took in in_turns(sides, 2 if quick else 7).items()}
    return {
        "overhead_vs_plain": found["ours"] / min(found["packed"], found["rows"]) - 1,
        "overhead_vs_plain_packed": found["ours"] / found["packed"] - 1,
    }


def gains(folder: Path, vocabulary: int, quick: bool) -> dict[str, float]:
    own = loaded(folder, attention.NAME)
    found = {}
    for size in GROUPS:
        say(f"prefix sharing: groups of {size}")
        shape = Shape(groups=1, size=size, prompt=128 if quick else 256, shortest=16, longest=96)
        rows = rows_of(shape, vocabulary, trained_from=shape.prompt - 1)
        sides = {"apart": partial(step, own, rows, None), "shared": partial(step, own, rows, 32)}
        took = in_turns(sides, 1 if quick else 3)
        found[str(size)] = middle([a / b for a, b in zip(took["apart"], took["shared"], strict=True)])
    return found


def fraction(folder: Path, vocabulary: int, quick: bool) -> dict[str, float]:
    """Floating point operations of matrices in a step (6 per weight and token, and attention's), over what the machine does in
    one large float32 product."""
    shape = Shape(groups=4, size=1, prompt=64 if quick else 192, shortest=64, longest=64)
    rows = rows_of(shape, vocabulary, trained_from=0)
    own = loaded(folder, attention.NAME)
    told = own.config
    embedding = told.vocab_size * told.hidden_size
    weights = sum(p.numel() for p in own.parameters() if p.ndim > 1) - (0 if told.tie_word_embeddings else embedding)
    heads = told.num_attention_heads * (getattr(told, "head_dim", None) or told.hidden_size // told.num_attention_heads)
    work = sum(6 * weights * len(row.ids) + 6 * told.num_hidden_layers * heads * len(row.ids) ** 2 for row in rows)
    side = 1024 if quick else 2048
    a, b = torch.randn(side, side), torch.randn(side, side)
    took = in_turns({"step": lambda: step(own, rows, None), "product": lambda: a @ b}, 2 if quick else 7)
    rate = 2 * side**3 / min(took["product"])
    return {"fraction_of_matmul_rate": work / min(took["step"]) / rate, "matmul_gflops": rate / 1e9}


def run(folder: Path, quick: bool) -> None:
    vocabulary = AutoConfig.from_pretrained(folder).vocab_size
    say("against plain Transformers")
    found: dict[str, object] = {**overhead(folder, vocabulary, quick), "prefix_gain": gains(folder, vocabulary, quick)}
    say("against the machine's matrix rate")
    print(json.dumps(found | fraction(folder, vocabulary, quick)))


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2] == "quick")
