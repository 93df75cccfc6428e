"""Training speed on one GPU: tokens per second and model FLOP utilisation at 0.5 B to 8 B parameters in bf16.

Random weights from a config, so no model hub is needed. Packed groups of samples that share a prompt; forward, backward and
AdamW. On a machine without a GPU `--quick` runs a toy model on the CPU, to show that it works.
`python -m benchmarks.gpu --sizes 0.5B,8B --peak-tflops 989` for a choice of sizes or a GPU that is not known by name.
"""

import argparse
import json
import time

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.report import say
from benchmarks.train_data import Shape, recorded
from tasks.training.data.batch import Batch, batch_of
from tasks.training.data.mapped import Row
from tasks.training.model import attention, scoring

SHAPES = {  # hidden, layers, heads, key-value heads, feed-forward, vocabulary: as in published models of that size
    "toy": (64, 2, 4, 2, 128, 512),
    "0.5B": (896, 24, 14, 2, 4864, 151936),
    "1.5B": (1536, 28, 12, 2, 8960, 151936),
    "3B": (2048, 36, 16, 2, 11008, 151936),
    "8B": (4096, 32, 32, 8, 14336, 128256),
}
PEAK_TFLOPS = {"H100": 989.0, "H200": 989.0, "H800": 989.0, "A100": 312.0, "L40S": 362.0, "B200": 2250.0}  # dense bf16


def measure(size: str, shape: Shape, steps: int, peak_tflops: float | None) -> dict[str, float | None]:
    """Bfloat16 weights, gradients and moments (8 bytes per parameter), so that 8 B fits into 80 GB."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind = torch.bfloat16 if device.type == "cuda" else torch.float32
    hidden, layers, heads, fewer, inner, vocabulary = SHAPES[size]
    told = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=fewer,
        intermediate_size=inner,
        max_position_embeddings=1 << 15,
    )
    told._attn_implementation = attention.NAME
    with device:
        model = LlamaForCausalLM(told)
    torch.nn.Module.to(model, kind)
    scoring.install(model)
    model.train()
    model.activation_checkpointing_enable({"use_reentrant": False})
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    rows = _rows(shape, vocabulary)
    batch = batch_of(list(range(len(rows))), rows, device, 32)
    took = []
    for number in range(steps + 2):  # two to compile and warm up
        began = time.perf_counter()
        _step(model, optimiser, batch)
        if device.type == "cuda":
            torch.cuda.synchronize()
        if number >= 2:
            took.append(time.perf_counter() - began)
    seconds = float(np.median(took))
    work = work_of(model, batch)
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "tokens_per_s": batch.tokens / seconds,
        "computed_tokens_per_s": batch.unique_tokens / seconds,
        "model_tflops": work / seconds / 1e12,
        "mfu": work / seconds / 1e12 / peak_tflops if peak_tflops else None,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else None,
    }


def work_of(model: LlamaForCausalLM, batch: Batch) -> int:
    """Floating-point operations that a forward and a backward pass need; what is computed again does not count.

    A token that rows share is one, attends to what is before it in the tree, and has logits only where one is scored.
    """
    config = model.config
    ends = config.vocab_size * config.hidden_size  # the embeddings are looked up, and the head is reckoned by itself
    body = sum(p.numel() for p in model.parameters() if p.ndim > 1) - 2 * ends
    pairs = int((batch.tree.depths + 1).sum())
    attention = 2 * config.num_hidden_layers * config.hidden_size * pairs  # the scores, and the sums over values
    return 6 * (body * batch.unique_tokens + ends * len(batch.scored) + attention)


def _step(model: LlamaForCausalLM, optimiser: torch.optim.Optimizer, batch: Batch) -> None:
    logprobs, _ = scoring.logprobs(model, batch)
    ratio = (logprobs - logprobs.detach()).exp()
    torch.autograd.backward(-(ratio * batch.advantages).mean())
    optimiser.step()
    optimiser.zero_grad()


def _rows(shape: Shape, vocabulary: int) -> list[Row]:
    held = recorded(shape, vocabulary, steps=1)
    rows = []
    for i, completion in enumerate(held.completions):
        ids = np.array(held.prompts[i // held.size] + completion)
        positions = np.arange(shape.prompt - 1, len(ids) - 1)
        values = np.full(len(positions), -1.0, np.float32)
        rows.append(Row(str(i), ids, positions, values, -values, 1))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a toy model, a few tokens: shows that it works")
    parser.add_argument("--sizes", default="0.5B,1.5B,3B,8B", help=f"of {', '.join(SHAPES)}")
    parser.add_argument("--peak-tflops", type=float, help="of the GPU in dense bf16; default: by its name")
    given = parser.parse_args()
    if not given.quick and not torch.cuda.is_available():
        parser.error("torch finds no GPU here; --quick shows on the CPU that the program works")
    sizes = ["toy"] if given.quick else given.sizes.split(",")
    if unknown := set(sizes) - set(SHAPES):
        parser.error(f"no size {', '.join(sorted(unknown))}: there are {', '.join(SHAPES)}")
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    peak = given.peak_tflops or next((rate for part, rate in PEAK_TFLOPS.items() if part in name), None)
    shape = Shape(groups=2, size=8, prompt=1024, shortest=128, longest=896)
    if given.quick:
        shape = Shape(groups=2, size=4, prompt=64, shortest=8, longest=32)
    found = {}
    for size in sizes:
        say(f"{size} on {name}")
        found[size] = measure(size, shape, 2 if given.quick else 10, peak)
    print(json.dumps({"device": name, "peak_tflops": peak, "sizes": found}, indent=2))


if __name__ == "__main__":
    main()
