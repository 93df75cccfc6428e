"""Forward and backward passes of one optimiser step, and passes without gradient."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tasks.training import histograms
from tasks.training import model as policy
from tasks.training.agreement import ByRow
from tasks.training.batch import Batch, batch_of, values_of
from tasks.training.config import TrainConfig
from tasks.training.data import Row
from tasks.training.errors import NotFinite
from tasks.training.losses.base import Loss, LossInputs
from tasks.training.losses.grpo import grpo
from tasks.training.losses.sft import sft
from tasks.training.packing import Minibatch, pack
from tasks.training.ranks import Ranks


@dataclass(frozen=True)
class Accumulated:
    """What one optimiser step's passes left behind, besides the gradients."""

    sums: dict[str, float]  # over the trained tokens of all ranks
    logprobs: ByRow  # of this rank's rows, under the weights before the step


def accumulate(
    model: nn.Module, chosen: Minibatch, rows: Sequence[Row], proximal: ByRow | None, config: TrainConfig, ranks: Ranks
) -> Accumulated:
    """Adds the gradient of (sum of token losses) / (trained tokens of the step, all ranks) to the model.

    `proximal` is None where it equals the current weights' log-probs. Raises NotFinite naming the rows.
    """
    tokens = sum(len(rows[i].positions) for i in chosen)
    mine = pack(chosen, rows, config.micro_batch_tokens, ranks.world)[ranks.rank]
    sums: dict[str, float] = {}
    seen: ByRow = {}
    broken: list[str] = []
    for number, micro_batch in enumerate(mine):
        policy.set_last(model, number == len(mine) - 1)
        batch = batch_of(micro_batch, rows, ranks.device)
        logprobs, entropy = policy.logprobs(model, batch, temperature(config))
        loss = objective(batch, logprobs, proximal, config)
        torch.autograd.backward(loss.total * (ranks.world / tokens))  # FSDP averages over ranks
        seen |= batch.by_row(logprobs)
        broken += _not_finite(batch, seen, loss, rows)
        for name, value in {**_common(batch, logprobs, entropy, loss), **loss.metrics}.items():
            sums[name] = sums.get(name, 0.0) + float(value)
    everyone = [name for names in ranks.gather(broken) for name in names]
    if everyone:
        raise NotFinite(f"the loss is NaN or infinite in rows {', '.join(everyone[:8])}: look at them in training_rows")
    return Accumulated(ranks.sum(sums), seen)


def objective(batch: Batch, logprobs: Tensor, proximal: ByRow | None, config: TrainConfig) -> Loss:
    """The configured loss, summed over the batch's trained tokens."""
    behaviour = batch.behaviour if config.objective == "grpo" else logprobs.detach()
    before = logprobs.detach() if proximal is None else values_of(batch.rows, proximal, logprobs.device)
    inputs = LossInputs(logprobs, before, behaviour, batch.advantages)
    return grpo(inputs, config.grpo) if config.objective == "grpo" else sft(inputs)


def look(model: nn.Module, rows: Sequence[Row], config: TrainConfig, ranks: Ranks) -> ByRow:
    """Log-probs of every row's trained tokens under the current weights, on every rank."""
    seen: ByRow = {}
    with torch.no_grad():
        for micro_batch in pack(list(range(len(rows))), rows, config.micro_batch_tokens, ranks.world)[ranks.rank]:
            batch = batch_of(micro_batch, rows, ranks.device)
            seen |= batch.by_row(policy.logprobs(model, batch, temperature(config))[0])
    return {i: values for part in ranks.gather(seen) for i, values in part.items()}


def temperature(config: TrainConfig) -> float:
    return config.grpo.temperature if config.objective == "grpo" else 1.0


def _common(batch: Batch, logprobs: Tensor, entropy: Tensor, loss: Loss) -> dict[str, Tensor | int]:
    return {
        "loss": loss.total.detach(),
        "tokens": len(batch.targets),
        "positions": sum(batch.documents) if batch.rows else 0,
        "entropy": entropy.sum(),
        "logprob": logprobs.detach().sum(),
        "engine_gap": (logprobs.detach() - batch.behaviour).abs().sum(),
        **histograms.of_ratio(logprobs, batch.behaviour),
    }


def _not_finite(batch: Batch, seen: ByRow, loss: Loss, rows: Sequence[Row]) -> list[str]:
    if torch.isfinite(loss.total):
        return []
    culprits = [i for i in batch.rows if not torch.isfinite(torch.from_numpy(seen[i])).all()]
    return [rows[i].name for i in culprits or batch.rows]
