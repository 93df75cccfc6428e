"""Off-policy correction: what a token weighs for having been sampled by another policy than the proximal one."""

import numpy as np
import torch
from torch import Tensor

from tasks.training.losses.base import by_sequence, ratio_of
from tasks.training.objectives import IcePop, KPop, Level, M2po, Mask, Truncate

TINY = 1e-6  # a probability of 0 or 1 in float32 has no binary KL divergence


def correct(
    proximal: Tensor,
    behaviour: Tensor,
    options: Truncate | Mask | IcePop | KPop | M2po | None,
    sequences: Tensor | None = None,
    cutoff: float | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Weights [tokens] without gradient, and their metrics as sums over tokens. With rho = pi_proximal / pi_behaviour:

    * truncate: min(rho, high), truncated importance sampling. IMPALA (arXiv 1802.01561); for a sampler that differs from the
      trainer "Your efficient RL framework secretly brings you off-policy RL training" (Yao et al., 2025).
    * mask: rho where low <= rho <= high, else 0, masked importance sampling ("When speed kills stability", Liu et al., 2025).
    * icepop: rho of the token where low <= rho <= high, else 0. Ring-1T (2510.18855), 0.5 to 5.
    * kpop: rho of the token where the binary KL divergence of {this token, any other} is at most `limit` both ways, else 0:
      D(p, q) = p log(p / q) + (1 - p) log((1 - p) / (1 - q)), wide for rare tokens, narrow for sure ones. KPop (Guo et al.,
      Ring team, 2026), limit 0.1.
    * m2po: rho where (log rho)^2 <= cutoff, else 0; `cutoff` is the step's (`second_moment_cutoff`). M2PO (2510.01161) as AReaL
      masks it, on both sides and whatever the advantage. The authors' code bounds only tokens with A > 0 and r > 1 or A < 0 and
      r < 1, of the trained policy's ratio r = pi / pi_old, and clips there.

    truncate and mask go by level: `token` is rho of the token, `sequence` prod rho over the token's sequence, `geometric` that
    to the power of 1 / tokens.
    """
    with torch.no_grad():
        log_ratio = proximal - behaviour
        raw = _ratio(log_ratio, sequences, getattr(options, "level", "token"))
        kept = _kept(raw, proximal, behaviour, options, cutoff)
        weight = torch.ones_like(raw) if options is None else torch.where(kept, raw, 0.0)
        if isinstance(options, Truncate):
            weight = weight.clamp(max=options.high)
        metrics = {
            "importance_weight": weight.sum(),
            "importance_truncated": ((weight < raw) & kept).sum() if options else raw.new_zeros(()),
            "importance_masked": (~kept).sum(),
        }
    return weight, {name: value.to(raw.dtype) for name, value in metrics.items()}


def second_moment_cutoff(log_ratios: np.ndarray, limit: float) -> float:
    """The largest (log rho)^2 that stays: the greatest are left out until the mean of the rest is at most `limit`.

    `log_ratios` are those of all tokens of a step, over all ranks, so that neither micro-batches nor ranks change what
    is kept.
    """
    squares = np.sort(np.square(log_ratios, dtype=np.float64))
    means = np.cumsum(squares) / np.arange(1, len(squares) + 1)
    fitting = int(np.searchsorted(means, limit, side="right"))  # means of ascending values ascend
    return float(squares[fitting - 1]) if fitting else -1.0


def _ratio(log_ratio: Tensor, sequences: Tensor | None, level: Level) -> Tensor:
    if level == "token":
        return ratio_of(log_ratio)
    assert sequences is not None, "which tokens make a sequence"
    total = by_sequence(log_ratio, sequences)
    return ratio_of(total if level == "sequence" else total / by_sequence(torch.ones_like(log_ratio), sequences))


def _kept(ratio: Tensor, proximal: Tensor, behaviour: Tensor, options: object, cutoff: float | None) -> Tensor:
    if isinstance(options, Mask | IcePop):
        return (ratio >= options.low) & (ratio <= options.high)
    if isinstance(options, KPop):
        p, q = (logprob.exp().clamp(TINY, 1 - TINY) for logprob in (proximal, behaviour))
        return (_binary_kl(p, q) <= options.limit) & (_binary_kl(q, p) <= options.limit)
    if isinstance(options, M2po):
        assert cutoff is not None, "M2PO's cutoff is that of the whole step"
        return (proximal - behaviour).double().square() <= cutoff * (1 + 1e-9)
    return torch.ones_like(ratio, dtype=torch.bool)


def _binary_kl(p: Tensor, q: Tensor) -> Tensor:
    return p * (p / q).log() + (1 - p) * torch.log((1 - p) / (1 - q))
