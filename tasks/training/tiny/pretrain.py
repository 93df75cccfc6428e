"""Pretrain `tiny` from nothing: `python -m tasks.training.tiny.pretrain --out FOLDER --steps N`.

The same seed, steps and thread count on the same build of PyTorch give the same weights. Context tokens count a tenth in
the loss: most are invented names that nobody could predict, while every sampled token can be worked out from the context.
"""

import argparse
import json
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from tasks.training.tiny.code import code_traces
from tasks.training.tiny.tokenizer import CONTEXT, VOCABULARY, train_tokenizer
from tasks.training.tiny.traces import Trace, traces

CONTEXT_WEIGHT = 0.1
ROW_TOKENS = 640


def new_model() -> LlamaForCausalLM:
    """An untrained `tiny`: hidden 192, 5 layers, 6 heads of 32, tied embeddings."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=192,
            intermediate_size=512,
            num_hidden_layers=5,
            num_attention_heads=6,
            num_key_value_heads=6,
            head_dim=32,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=2,
            pad_token_id=0,
        )
    )


def rows(stream: Iterator[Trace], tokenizer: PreTrainedTokenizerFast) -> Iterator[tuple[list[int], list[float]]]:
    """Rows of ROW_TOKENS ids with their loss weights. A row starts with a trace; the last trace is cut."""
    ids: list[int] = []
    weights: list[float] = []
    for trace in stream:
        for piece, encoded in zip(trace, tokenizer([p.text for p in trace])["input_ids"], strict=True):
            ids += encoded
            weights += [1.0 if piece.sampled else CONTEXT_WEIGHT] * len(encoded)
        if len(ids) >= ROW_TOKENS:
            yield ids[:ROW_TOKENS], weights[:ROW_TOKENS]
            ids, weights = [], []


def weighted_loss(model: LlamaForCausalLM, ids: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted mean cross entropy in nats, and the share of sampled tokens that are the most likely one."""
    logits = model(ids).logits[:, :-1]
    targets, weight = ids[:, 1:], weights[:, 1:]
    losses = functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), reduction="none")
    right = ((logits.argmax(-1) == targets) & (weight == 1)).sum() / (weight == 1).sum()
    return (losses * weight.reshape(-1)).sum() / weight.sum(), right


def new_optimizers(model: LlamaForCausalLM, peak: float) -> list[torch.optim.Optimizer]:
    """Muon (Jordan et al. 2024) for the layers' matrices, AdamW for the embedding and the norms."""
    matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]
    rest = [p for p in model.parameters() if all(p is not matrix for matrix in matrices)]
    return [
        torch.optim.Muon(matrices, lr=peak, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, lr=peak, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def learning_rate(step: int, steps: int, peak: float) -> float:
    """Warm-up over 100 steps, constant, linear decay to a fiftieth over the last third."""
    if step < 100:
        return peak * (step + 1) / 100
    return peak * min(1.0, 0.02 + 0.98 * 3 * (steps - step) / steps)


def pretrain(out: Path, *, steps: int, batch: int, peak: float, seed: int, save_every: int = 200) -> None:
    """Train and save a Hugging Face folder with bfloat16 weights."""
    torch.manual_seed(seed)
    code = code_traces(seed)
    sample = ["".join(piece.text for piece in trace) for trace in islice(traces(seed, code), 6000)]
    tokenizer = train_tokenizer(sample)
    stream = rows(traces(seed + 1, code), tokenizer)
    model = new_model()
    optimizers = new_optimizers(model, peak)
    out.mkdir(parents=True, exist_ok=True)
    (out / "log.jsonl").unlink(missing_ok=True)
    started = time.monotonic()
    for step in range(steps):
        for group in (group for optimizer in optimizers for group in optimizer.param_groups):
            group["lr"] = learning_rate(step, steps, peak)
        ids, weights = zip(*islice(stream, batch), strict=True)
        loss, right = weighted_loss(model, torch.tensor(ids), torch.tensor(weights))
        model.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        if step % 20 == 0:
            tokens = (step + 1) * batch * ROW_TOKENS
            line = {"step": step, "loss": round(loss.item(), 4), "right": round(right.item(), 4), "tokens": tokens}
            with (out / "log.jsonl").open("a") as log:
                print(json.dumps(line | {"seconds": round(time.monotonic() - started, 1)}), file=log)
        if (step + 1) % save_every == 0 or step + 1 == steps:
            tokenizer.save_pretrained(out)
            model.save_pretrained(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--batch", type=int, default=4, help="rows of 640 tokens per step")
    parser.add_argument("--peak", type=float, default=2e-3, help="peak learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    pretrain(arguments.out, steps=arguments.steps, batch=arguments.batch, peak=arguments.peak, seed=arguments.seed)


if __name__ == "__main__":
    main()
