"""Forward and backward passes of one optimiser step, and passes without gradient."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from tasks.training.config import TrainConfig
from tasks.training.data.batch import Batch, batch_of, values_of
from tasks.training.data.mapped import ByRow, Row
from tasks.training.data.packing import Minibatch, blocks, pack
from tasks.training.errors import NotFinite
from tasks.training.losses import compute
from tasks.training.losses.base import Loss, LossInputs
from tasks.training.losses.correction import correct, second_moment_cutoff
from tasks.training.model import scoring, sharding
from tasks.training.model.scoring import Scores
from tasks.training.objectives import M2po, Truncate
from tasks.training.ranks import Ranks
from tasks.training.step import histograms
from tasks.training.step.aggregation import Weighing


def accumulate(
    model: nn.Module,
    chosen: Minibatch,
    rows: Sequence[Row],
    weighing: Weighing,
    frozen: Mapping[str, ByRow],
    config: TrainConfig,
    ranks: Ranks,
) -> dict[str, float]:
    """Adds the gradient of (sum of weighted losses) / (normaliser of the step, all ranks) to the model.

    Returns the step's metrics as sums over the trained tokens of all ranks, and its `normaliser`. `frozen` is as
    `before.look_around` gives it. Raises NotFinite naming the rows.
    """
    normaliser = weighing.normaliser(chosen)
    paired = "pairs" in config.objective.needs
    mine = pack(chosen, rows, config.micro_batch_tokens, ranks.shards, config.shared_prefix, paired=paired)[ranks.shard]
    step = Step(weighing, frozen, config, _cutoff(chosen, rows, frozen, config))
    sums: dict[str, float] = {}
    broken: list[str] = []
    for number, micro_batch in enumerate(mine):
        sharding.set_last(model, number == len(mine) - 1)
        batch = batch_of(micro_batch, rows, ranks.device, config.shared_prefix)
        scores = scoring.scores(model, batch, temperature(config), config.attention)
        loss = objective(batch, [rows[i] for i in batch.rows], scores, step)
        torch.autograd.backward(loss.total * (ranks.shards / normaliser))  # FSDP averages over ranks
        broken += _not_finite(batch, scores.logprobs, loss, rows)
        for name, value in {**_common(batch, scores.logprobs, scores.entropy, loss), **loss.metrics}.items():
            sums[name] = sums.get(name, 0.0) + float(value)
    everyone = [name for names in ranks.gather(broken) for name in names]
    if everyone:
        raise NotFinite(f"the loss is NaN or infinite in rows {', '.join(everyone[:8])}: look at them in training_rows")
    return ranks.sum(sums) | {"normaliser": normaliser}


@dataclass(frozen=True)
class Step:
    """What all micro-batches of a step have in common."""

    weighing: Weighing
    frozen: Mapping[str, ByRow]
    config: TrainConfig
    cutoff: float | None  # of M2PO, over the whole step


def objective(batch: Batch, held: Sequence[Row], scores: Scores, step: Step) -> Loss:
    """The configured loss as a weighted sum over the batch's trained tokens."""
    config, weighing = step.config, step.weighing
    known = {name: values_of(batch.rows, values, scores.logprobs.device) for name, values in step.frozen.items()}
    sampled = "behaviour" in config.objective.needs
    behaviour = batch.behaviour if sampled else scores.logprobs.detach()
    proximal = _proximal(batch, held, scores.logprobs.detach(), known, config) if sampled else behaviour
    importance, about = correct(proximal, behaviour, config.correction, batch.sequences, step.cutoff)
    inputs = LossInputs(
        logprobs=scores.logprobs,
        proximal=proximal,
        behaviour=behaviour,
        advantages=known.get("advantages", batch.advantages),
        sequences=batch.sequences,
        weights=_each(batch, weighing.of_token),
        means=_each(batch, weighing.of_penalty),
        importance=importance,
        reference=known.get("reference"),
        teacher=known.get("teacher"),
        values=scores.values,
        old_values=known.get("values"),
        returns=known.get("returns"),
        pairs=_pairs(batch, held) if "pairs" in config.objective.needs else None,
    )
    loss = compute(inputs, scores.entropy, config)
    if not sampled:
        return loss
    # What tokens are worth is told by the policy against its sampler, whichever of the two the proximal one is.
    how = config.correction or Truncate()
    worth, _ = correct(scores.logprobs.detach(), behaviour, how, batch.sequences, step.cutoff)
    about |= {"sample_weight": worth.sum(), "sample_weight_squared": worth.square().sum()}
    return Loss(loss.total, loss.metrics | about)


def look(
    model: nn.Module,
    rows: Sequence[Row],
    config: TrainConfig,
    ranks: Ranks,
    chosen: Sequence[int] | None = None,
) -> dict[str, ByRow]:
    """`logprobs` of every row's trained tokens under the current weights, and `values` of a critic, on every rank.

    `chosen`: the numbers of the rows to look at, by default all.
    """
    seen: dict[str, ByRow] = {"logprobs": {}}
    with torch.no_grad():
        for block in blocks(range(len(rows)) if chosen is None else chosen, rows):
            packed = pack(block, rows, config.micro_batch_tokens, ranks.shards, config.shared_prefix)
            for micro_batch in packed[ranks.shard]:
                batch = batch_of(micro_batch, rows, ranks.device, config.shared_prefix)
                scores = scoring.scores(model, batch, temperature(config), config.attention)
                seen["logprobs"] |= batch.by_row(scores.logprobs)
                if scores.values is not None:
                    seen.setdefault("values", {}).update(batch.by_row(scores.values))
    names = sorted(set().union(*ranks.gather(list(seen))))
    return {
        name: {i: values for part in ranks.gather(seen.get(name, {})) for i, values in part.items()} for name in names
    }


def temperature(config: TrainConfig) -> float:
    """At which log-probs are taken: the sampler's, where they are compared with the sampler's."""
    return config.temperature if "behaviour" in config.objective.needs else 1.0


def _proximal(
    batch: Batch, held: Sequence[Row], logprobs: Tensor, known: Mapping[str, Tensor], config: TrainConfig
) -> Tensor:
    """Log-probs under the policy that the trained one is kept close to."""
    if config.proximal == "behaviour":
        return batch.behaviour
    if config.proximal == "recomputed":
        return known.get("proximal", logprobs)  # not looked up where it is known to be the current ones
    share = torch.tensor([approximate_share(row, config) for row in held] or [0.0], device=logprobs.device)
    return batch.behaviour + share[batch.sequences] * (logprobs - batch.behaviour)


def approximate_share(row: Row, config: TrainConfig) -> float:
    """How much of the way from the sampler to the trained policy the proximal one has gone, by weight version.

    (v_proximal - v_behaviour) / (v - v_behaviour), A-3PO (arXiv 2512.06547): v_proximal is the input model's version, v the next
    one, v_behaviour that of the row's oldest token.
    """
    assert config.policy_version is not None, "the version of the input model is set before the first step"
    age = max(0, config.policy_version - row.version)
    return age / (age + 1)


def _cutoff(chosen: Minibatch, rows: Sequence[Row], frozen: Mapping[str, ByRow], config: TrainConfig) -> float | None:
    if not isinstance(config.correction, M2po):
        return None
    distances = [frozen["proximal"][i] - rows[i].logprobs for i in chosen]
    return second_moment_cutoff(np.concatenate(distances), config.correction.limit)


def _each(batch: Batch, of_rows: Sequence[float]) -> Tensor:
    """[trained]: at every token the number of its row."""
    values = torch.tensor([of_rows[i] for i in batch.rows] or [0.0], device=batch.sequences.device)
    return values[batch.sequences]


def _pairs(batch: Batch, held: Sequence[Row]) -> Tensor:
    """[trained]: number of the token's group."""
    numbers = {group: number for number, group in enumerate(dict.fromkeys(row.group for row in held))}
    of_rows = torch.tensor([numbers[row.group] for row in held] or [0], device=batch.sequences.device)
    return of_rows[batch.sequences]


def _common(batch: Batch, logprobs: Tensor, entropy: Tensor, loss: Loss) -> dict[str, Tensor | int]:
    return {
        "loss": loss.total.detach(),
        "tokens": len(batch.targets),
        "positions": batch.tokens,
        "computed": batch.unique_tokens,
        "entropy": entropy.detach().sum(),
        "logprob": logprobs.detach().sum(),
        "engine_gap": (logprobs.detach() - batch.behaviour).abs().sum(),
        **histograms.of_ratio(logprobs, batch.behaviour),
    }


def _not_finite(batch: Batch, logprobs: Tensor, loss: Loss, rows: Sequence[Row]) -> list[str]:
    if torch.isfinite(loss.total):
        return []
    seen = batch.by_row(logprobs)
    culprits = [i for i in batch.rows if not torch.isfinite(torch.from_numpy(seen[i])).all()]
    return [rows[i].name for i in culprits or batch.rows]
