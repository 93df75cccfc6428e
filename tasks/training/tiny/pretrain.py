"""Pretrain `tiny` from nothing: `python -m tasks.training.tiny.pretrain --out FOLDER`; about 45 minutes on one core.

The same arguments on the same build of Python and PyTorch give the same weights. Context tokens count a tenth in
the loss: most are invented names that nobody could predict, while every sampled token can be worked out from the context.
"""

import argparse
import copy
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from tasks.training.tiny.code import code_traces
from tasks.training.tiny.tokenizer import CONTEXT, VOCABULARY, train_tokenizer
from tasks.training.tiny.traces import Trace, short_echoes, traces

CONTEXT_WEIGHT = 0.1
SAVE_EVERY = 200  # steps
TOKENIZER_TRACES = 6000  # that the tokenizer is learnt from


@dataclass(frozen=True)
class Lesson:
    """A part of the training: rows of one length from one stream. 2,560 to 3,072 tokens a step."""

    stream: Iterator[Trace]
    steps: int
    row_tokens: int
    batch: int


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


def rows(lesson: Lesson, tokenizer: PreTrainedTokenizerFast) -> Iterator[tuple[list[int], list[float]]]:
    """Rows of `row_tokens` ids with their loss weights. A row starts with a trace; the last trace is cut."""
    ids: list[int] = []
    weights: list[float] = []
    for trace in lesson.stream:
        for piece, encoded in zip(trace, tokenizer([p.text for p in trace])["input_ids"], strict=True):
            ids += encoded
            weights += [1.0 if piece.sampled else CONTEXT_WEIGHT] * len(encoded)
        if len(ids) >= lesson.row_tokens:
            yield ids[: lesson.row_tokens], weights[: lesson.row_tokens]
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
    """Warm-up over 50 steps, constant, linear decay to a fiftieth over the last third."""
    if step < 50:
        return peak * (step + 1) / 50
    return peak * min(1.0, 0.02 + 0.98 * 3 * (steps - step) / steps)


def pretrain(out: Path, *, start: Path | None, lessons: Sequence[Lesson], code: Sequence[Trace], peak: float) -> None:
    """Teach the lessons one after the other; saves a Hugging Face folder with float16 weights.

    `start` is a folder to go on from, with new optimiser state; None begins with nothing.
    """
    tokenizer, model = fresh(code) if start is None else reopened(start)
    optimizers = new_optimizers(model, peak)
    out.mkdir(parents=True, exist_ok=True)
    (out / "log.jsonl").unlink(missing_ok=True)
    step, total, started = 0, sum(lesson.steps for lesson in lessons), time.monotonic()
    for lesson in lessons:
        stream = rows(lesson, tokenizer)
        for _ in range(lesson.steps):
            for group in (group for optimizer in optimizers for group in optimizer.param_groups):
                group["lr"] = learning_rate(step, total, peak)
            loss, right = update(model, optimizers, list(islice(stream, lesson.batch)))
            step += 1
            if step % 20 == 0:
                line = {"step": step, "loss": round(loss, 4), "right": round(right, 4)}
                with (out / "log.jsonl").open("a") as log:
                    print(json.dumps(line | {"seconds": round(time.monotonic() - started, 1)}), file=log)
            if step % SAVE_EVERY == 0 or step == total:
                save(model, tokenizer, out)


def curriculum(seed: int, code: Sequence[Trace], *, echoes: int, lookups: int, repairs: int) -> tuple[Lesson, ...]:
    """Copying first, where there is little to look through; then everything; then mostly repairs of code. In steps."""
    return (
        Lesson(short_echoes(seed + 1), echoes, row_tokens=96, batch=32),
        Lesson(traces(seed + 2, code, 0.2), lookups, row_tokens=512, batch=5),
        Lesson(traces(seed + 3, code, 0.6), repairs, row_tokens=512, batch=5),
    )


def fresh(code: Sequence[Trace]) -> tuple[PreTrainedTokenizerFast, LlamaForCausalLM]:
    """A tokenizer learnt from the first traces, and an untrained model."""
    sample = ["".join(piece.text for piece in trace) for trace in islice(traces(0, code, 0.2), TOKENIZER_TRACES)]
    return train_tokenizer(sample), new_model()


def reopened(folder: Path) -> tuple[PreTrainedTokenizerFast, LlamaForCausalLM]:
    """What `save` left, in float32."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return tokenizer, model


def update(
    model: LlamaForCausalLM, optimizers: list[torch.optim.Optimizer], batch: list[tuple[list[int], list[float]]]
) -> tuple[float, float]:
    """One step; the loss and the share of sampled tokens that were the most likely."""
    ids, weights = zip(*batch, strict=True)
    loss, right = weighted_loss(model, torch.tensor(ids), torch.tensor(weights))
    model.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        optimizer.step()
    return loss.item(), right.item()


def save(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, out: Path) -> None:
    """Weights in float16: eight more bits of mantissa would double the file for nothing a small model can use."""
    tokenizer.save_pretrained(out)
    half = copy.deepcopy(model).half()  # type: ignore[no-untyped-call]
    half.save_pretrained(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--start", type=Path, help="a folder to go on from; default: begin with nothing")
    parser.add_argument("--echoes", type=int, default=320, help="steps of the first lesson")
    parser.add_argument("--lookups", type=int, default=1180, help="steps of the second")
    parser.add_argument("--repairs", type=int, default=1350, help="steps of the third")
    parser.add_argument("--peak", type=float, default=4e-3, help="peak learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(given.seed)
    code = code_traces(given.seed)
    lessons = curriculum(given.seed, code, echoes=given.echoes, lookups=given.lookups, repairs=given.repairs)
    pretrain(given.out, start=given.start, lessons=lessons, code=code, peak=given.peak)


if __name__ == "__main__":
    main()
