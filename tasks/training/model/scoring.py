"""Log-probs and entropy of the trained tokens, without ever holding all logits."""

import inspect
import re
from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from tasks.training.data.batch import Batch
from tasks.training.model import critic
from tasks.training.model.attention import Way, visible

KEPT_BYTES = 256 << 20  # logits of this size are kept for the backward pass; larger ones are computed again, in pieces
PIECE_BYTES = 64 << 20
TILE_BYTES = 2 << 20  # of logits for each thread at a time, so that one step finds in the cache what the last one left


@dataclass(frozen=True)
class Scores:
    """Of the trained tokens of a batch, each [trained], float32, with gradient."""

    logprobs: Tensor  # in nats
    entropy: Tensor  # of the prediction there, in nats
    values: Tensor | None = None  # of the state before the token, where the model has a value head


def scores(model: nn.Module, batch: Batch, temperature: float = 1.0, attention: Way = "auto") -> Scores:
    """Everything about the trained tokens in one forward pass."""
    found = logprobs(model, batch, temperature, attention)
    return Scores(*found, critic.taken(model, batch.positions))


def logprobs(
    model: nn.Module, batch: Batch, temperature: float = 1.0, attention: Way = "auto"
) -> tuple[Tensor, Tensor]:
    """Log-probs of the trained tokens and the entropy there, both [trained], float32, in nats, both with gradient.

    Logits exist only at positions that predict a trained token, once for all rows that share the position.
    """
    about = {
        "input_ids": batch.input_ids,
        "position_ids": batch.position_ids,
        "visible": visible(batch.tree, batch.input_ids.device, attention),
        "logits_to_keep": batch.scored,
        "use_cache": False,
    }
    if getattr(model, "scores_in_pieces", False):
        scores: tuple[Tensor, Tensor] = model(**about, asked=(batch.positions, batch.targets, temperature))
        return scores
    return _of_logits(model(**about).logits[0], batch.positions, batch.targets, temperature)


def install(model: nn.Module) -> None:
    """Teaches a model of Hugging Face to score tokens piece by piece, where its logits are nothing but its head's output.

    To be called before sharding: scoring is part of `forward`, so that FSDP gathers the head's weight for it.
    """
    if _plain(model):
        model.scores_in_pieces = True  # type: ignore[assignment]
        model.forward = MethodType(_forward, model)


def _plain(model: nn.Module) -> bool:
    """Whether the source says that logits are the head's output, uncapped and unscaled, and the head is a matrix."""
    source = inspect.getsource(type(model).forward)
    return len(re.findall(r"^\s*logits = ", source, re.MULTILINE)) == 1 and type(_head(model)) is nn.Linear


def _head(model: Any) -> nn.Module | None:
    head: nn.Module | None = model.get_output_embeddings()
    return head


def _forward(self: Any, *args: Any, asked: tuple[Tensor, Tensor, float] | None = None, **about: Any) -> Any:
    if asked is None:
        return type(self).forward(self, *args, **about)
    scored = about.pop("logits_to_keep")
    hidden = self.get_decoder()(*args, **about).last_hidden_state[0, scored]
    critic.judge(self, hidden)
    head: Any = _head(self)
    positions, targets, temperature = asked
    if type(head) is nn.Linear and not isinstance(head.weight, DTensor):
        return _Scores.apply(  # type: ignore[no-untyped-call]
            hidden, head.weight, head.bias, positions, targets, temperature
        )
    return _of_logits(head(hidden), positions, targets, temperature)  # an adapter on the head, or the head in shards


def _of_logits(logits: Tensor, positions: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    log = torch.log_softmax(logits.float() / temperature, -1)
    entropy = -(log.exp() * log).sum(-1)
    return log[positions, targets], entropy[positions]


class _Scores(torch.autograd.Function):
    """Fused linear cross entropy by pieces (as in Liger, arXiv 2410.10989, and Cut Cross-Entropy, 2411.09009).

    With logits z = (W h + b) / T at a position, p = softmax(z) and H its entropy, the gradient at z is

        g_logprob (onehot(target) - p)  and  -g_entropy p (log p + H)
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        positions: Tensor,
        targets: Tensor,
        temperature: float,
    ) -> tuple[Tensor, Tensor]:
        """hidden [scored, size], weight [vocabulary, size], positions and targets [trained] -> two tensors [trained]."""
        keep = len(hidden) * len(weight) * 4 <= KEPT_BYTES and any(ctx.needs_input_grad)
        at_once = keep and hidden.dtype == torch.float32  # pieces would spare nothing: no second copy is made
        size = max(1, len(hidden) if at_once else PIECE_BYTES // (4 * len(weight)))
        pieces = [slice(start, start + size) for start in range(0, max(1, len(hidden)), size)]
        ctx.logs = {}
        entropy = hidden.new_empty(len(hidden), dtype=torch.float32)
        chosen = torch.empty_like(targets, dtype=torch.float32)
        for piece in pieces:
            logits = _logits(hidden[piece], weight, bias, temperature)
            for tile in _tiles(logits):
                log = torch.log_softmax(logits[tile], -1)
                logits[tile] = log
                entropy[piece][tile] = -log.exp().mul_(log).sum(-1)
            inside = _inside(positions, piece)
            chosen[inside] = logits[positions[inside] - piece.start, targets[inside]]
            if keep:
                ctx.logs[piece.start] = logits
        ctx.save_for_backward(hidden, weight, bias, positions, targets, entropy)
        ctx.pieces, ctx.temperature = pieces, temperature
        ctx.set_materialize_grads(False)
        return chosen, entropy[positions]

    @staticmethod
    def backward(ctx: Any, for_logprobs: Tensor | None, for_entropy: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, positions, targets, entropy = ctx.saved_tensors
        if for_logprobs is None:
            for_logprobs = torch.zeros_like(targets, dtype=entropy.dtype)
        at_target = for_logprobs / ctx.temperature
        at_logprob = torch.zeros_like(entropy).index_add_(0, positions, at_target)
        at_entropy = None
        if for_entropy is not None:
            at_entropy = torch.zeros_like(entropy).index_add_(0, positions, for_entropy / ctx.temperature)
        for_hidden = torch.empty_like(hidden)
        for_weight: Tensor | None = None
        for_bias = torch.zeros_like(bias, dtype=torch.float32) if ctx.needs_input_grad[2] else None
        for piece in ctx.pieces:
            kept = ctx.logs.pop(piece.start, None)
            whole = _logits(hidden[piece], weight, bias, ctx.temperature) if kept is None else kept
            for tile in _tiles(whole):
                log = torch.log_softmax(whole[tile], -1) if kept is None else whole[tile]
                slope = -at_logprob[piece][tile, None]
                if at_entropy is not None:
                    slope = slope - at_entropy[piece][tile, None] * (log + entropy[piece][tile, None])
                torch.mul(log.exp_(), slope, out=whole[tile])
            inside = _inside(positions, piece)
            places = (positions[inside] - piece.start, targets[inside])
            gradient = whole.index_put_(places, at_target[inside], accumulate=True).to(hidden.dtype)
            torch.mm(gradient, weight, out=for_hidden[piece])
            if ctx.needs_input_grad[1]:
                for_weight = _added(for_weight, gradient, hidden[piece])
            if for_bias is not None:
                for_bias += gradient.sum(0)
        return (
            for_hidden,
            for_weight if for_weight is None else for_weight.to(weight.dtype),
            for_bias if for_bias is None else for_bias.to(bias.dtype),
            *(None, None, None),
        )


def _logits(hidden: Tensor, weight: Tensor, bias: Tensor | None, temperature: float) -> Tensor:
    logits = F.linear(hidden, weight, bias).float()
    return logits if temperature == 1.0 else logits.div_(temperature)


def _tiles(logits: Tensor) -> list[slice]:
    """Rows at a time, as many for each thread."""
    size = torch.get_num_threads() * max(1, TILE_BYTES // (4 * logits.shape[1]))
    return [slice(start, start + size) for start in range(0, len(logits), size)]


def _inside(positions: Tensor, piece: slice) -> Tensor:
    return torch.nonzero((positions >= piece.start) & (positions < piece.stop)).squeeze(-1)


def _added(total: Tensor | None, gradient: Tensor, hidden: Tensor) -> Tensor:
    """The gradient of a matrix in float32, a piece more; the first is written and not added to zeros."""
    if total is None:
        return (gradient.T @ hidden).float()
    return total.addmm_(gradient.T, hidden) if total.dtype == gradient.dtype else total.add_(gradient.T @ hidden)
