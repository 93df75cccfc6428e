"""Counts of token values in fixed bins: sums, so that they add up over micro-batches and ranks."""

from collections.abc import Mapping

import torch
from torch import Tensor

_HALF = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
EDGES: Mapping[str, tuple[float, ...]] = {
    "log_ratio": (*(-edge for edge in reversed(_HALF)), *_HALF),  # log(policy / sampler) of a token, in nats
    "kl": (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0),  # Schulman's k3 of the same
}
PREFIX = "histogram/"


def of_ratio(logprobs: Tensor, behaviour: Tensor) -> dict[str, Tensor]:
    """Tokens per bin, as `histogram/NAME/BIN` -> count; bin 0 is below the first edge."""
    log_ratio = (logprobs.detach() - behaviour).float()
    values = {"log_ratio": log_ratio, "kl": torch.expm1(log_ratio) - log_ratio}
    return {
        f"{PREFIX}{name}/{number}": count
        for name, found in values.items()
        for number, count in enumerate(_counts(found, EDGES[name]))
    }


def _counts(values: Tensor, edges: tuple[float, ...]) -> Tensor:
    bins = torch.bucketize(values.nan_to_num(nan=float("inf")), torch.tensor(edges, device=values.device))
    return torch.bincount(bins, minlength=len(edges) + 1)


def gathered(sums: Mapping[str, float]) -> dict[str, list[int]]:
    """`histogram/NAME` -> tokens per bin, from the sums of a step."""
    return {
        f"{PREFIX}{name}": [int(sums[f"{PREFIX}{name}/{number}"]) for number in range(len(edges) + 1)]
        for name, edges in EDGES.items()
        if f"{PREFIX}{name}/0" in sums
    }
