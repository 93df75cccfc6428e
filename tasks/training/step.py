"""Forward and backward passes of one optimiser step, and passes without gradient."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tasks.training import histograms, scoring
from tasks.training import model as policy
from tasks.training.aggregation import Weighing
from tasks.training.agreement import ByRow
from tasks.training.batch import Batch, batch_of, values_of
from tasks.training.config import TrainConfig
from tasks.training.data import Row
from tasks.training.errors import NotFinite
from tasks.training.losses import compute
from tasks.training.losses.base import Loss, LossInputs
from tasks.training.losses.correction import correct
from tasks.training.packing import Minibatch, pack
from tasks.training.ranks import Ranks


@dataclass(frozen=True)
class Accumulated:
    """What one optimiser step's passes left behind, besides the gradients."""

    sums: dict[str, float]  # over the trained tokens of all ranks
    logprobs: ByRow  # of this rank's rows, under the weights before the step


def accumulate(
    model: nn.Module,
    chosen: Minibatch,
    rows: Sequence[Row],
    weighing: Weighing,
    proximal: ByRow | None,
    config: TrainConfig,
    ranks: Ranks,
) -> Accumulated:
    """Adds the gradient of (sum of weighted losses) / (normaliser of the step, all ranks) to the model.

    `proximal` is None where it equals the current weights' log-probs. Raises NotFinite naming the rows.
    """
    normaliser = weighing.normaliser(chosen)
    mine = pack(chosen, rows, config.micro_batch_tokens, ranks.world, config.shared_prefix)[ranks.rank]
    sums: dict[str, float] = {}
    seen: ByRow = {}
    broken: list[str] = []
    for number, micro_batch in enumerate(mine):
        policy.set_last(model, number == len(mine) - 1)
        batch = batch_of(micro_batch, rows, ranks.device, config.shared_prefix)
        logprobs, entropy = scoring.logprobs(model, batch, temperature(config), config.attention)
        loss = objective(batch, logprobs, weighing, proximal, config)
        torch.autograd.backward(loss.total * (ranks.world / normaliser))  # FSDP averages over ranks
        seen |= batch.by_row(logprobs)
        broken += _not_finite(batch, seen, loss, rows)
        for name, value in {**_common(batch, logprobs, entropy, loss), **loss.metrics}.items():
            sums[name] = sums.get(name, 0.0) + float(value)
    everyone = [name for names in ranks.gather(broken) for name in names]
    if everyone:
        raise NotFinite(f"the loss is NaN or infinite in rows {', '.join(everyone[:8])}: look at them in training_rows")
    return Accumulated(ranks.sum(sums) | {"normaliser": normaliser}, seen)


def objective(batch: Batch, logprobs: Tensor, weighing: Weighing, proximal: ByRow | None, config: TrainConfig) -> Loss:
    """The configured loss as a weighted sum over the batch's trained tokens."""
    before = logprobs.detach() if proximal is None else values_of(batch.rows, proximal, logprobs.device)
    behaviour = batch.behaviour if "behaviour" in config.objective.needs else before
    importance, about = correct(before, behaviour, config.correction)
    counts = torch.tensor(batch.counts if batch.rows else [0], device=logprobs.device)
    each = torch.tensor([weighing.of_token[i] for i in batch.rows] or [0.0], device=logprobs.device)
    inputs = LossInputs(
        logprobs=logprobs,
        proximal=before,
        behaviour=behaviour,
        advantages=batch.advantages,
        sequences=torch.arange(len(counts), device=logprobs.device).repeat_interleave(counts),
        weights=each.repeat_interleave(counts),
        importance=importance,
    )
    loss = compute(inputs, config.objective)
    return Loss(loss.total, loss.metrics | about) if "ratio" in loss.metrics else loss


def look(model: nn.Module, rows: Sequence[Row], config: TrainConfig, ranks: Ranks) -> ByRow:
    """Log-probs of every row's trained tokens under the current weights, on every rank."""
    seen: ByRow = {}
    with torch.no_grad():
        for micro_batch in pack(
            list(range(len(rows))), rows, config.micro_batch_tokens, ranks.world, config.shared_prefix
        )[ranks.rank]:
            batch = batch_of(micro_batch, rows, ranks.device, config.shared_prefix)
            seen |= batch.by_row(scoring.logprobs(model, batch, temperature(config), config.attention)[0])
    return {i: values for part in ranks.gather(seen) for i, values in part.items()}


def temperature(config: TrainConfig) -> float:
    """At which log-probs are taken: the sampler's, where they are compared with the sampler's."""
    return config.temperature if "behaviour" in config.objective.needs else 1.0


def _common(batch: Batch, logprobs: Tensor, entropy: Tensor, loss: Loss) -> dict[str, Tensor | int]:
    return {
        "loss": loss.total.detach(),
        "tokens": len(batch.targets),
        "positions": batch.tokens,
        "computed": batch.unique_tokens,
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
