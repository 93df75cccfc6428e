"""Attention over a packed tree of rows: every token sees its own path to the root, and nothing of other rows.

Three ways with one result, chosen by name:

* `segments`: fused calls over pairs of segments, joined by their log-sum-exp. On CPU; no mask, and nothing computed in vain.
* `flex`: PyTorch's FlexAttention, compiled, with a block mask. On CUDA.
* `dense`: one fused call under a [tokens, tokens] mask. Anywhere, and what `segments` falls back to under a sliding window.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from tasks.training.data.tree import Segment, Tree
from tasks.training.errors import TrainingError

NAME = "packed_tree"
Way = Literal["auto", "segments", "flex", "dense"]


@dataclass(frozen=True)
class Visible:
    """Who sees whom in one packed sequence; masks are made once and serve every layer."""

    tree: Tree
    device: torch.device
    way: Literal["segments", "flex", "dense"]

    @cached_property
    def _numbers(self) -> tuple[Tensor, Tensor]:
        return torch.from_numpy(self.tree.reach).to(self.device), torch.from_numpy(self.tree.depths).to(self.device)

    def rule(self, window: int | None) -> Callable[[Any, Any, Tensor, Tensor], Tensor]:
        """`mask_mod` of FlexAttention: may token `i` see token `j`?"""
        reach, depths = self._numbers

        def sees(_batch: Any, _head: Any, i: Tensor, j: Tensor) -> Tensor:
            ancestor = (j <= i) & (i < reach[j])
            return ancestor if window is None else ancestor & (depths[i] - depths[j] < window)

        return sees

    @cached_property
    def _masks(self) -> dict[int | None, Any]:
        return {}

    def dense(self, window: int | None) -> Tensor:
        """[tokens, tokens], True where the row's token sees the column's."""
        if window not in self._masks:
            every = torch.arange(len(self.tree.ids), device=self.device)
            self._masks[window] = self.rule(window)(None, None, every[:, None], every[None])
        found: Tensor = self._masks[window]
        return found

    def blocks(self, window: int | None) -> BlockMask:
        if window not in self._masks:
            size = len(self.tree.ids)
            self._masks[window] = create_block_mask(self.rule(window), None, None, size, size, device=self.device)
        found: BlockMask = self._masks[window]
        return found


def visible(tree: Tree, device: torch.device, way: Way = "auto") -> Visible:
    """`auto`: flex on CUDA, segments on CPU. Raises TrainingError for a way that the device does not have."""
    if way == "auto":
        way = "flex" if device.type == "cuda" else "segments"
    if way == "segments" and device.type != "cpu":
        raise TrainingError(f"attention=segments is for CPU, the device is {device.type}: set auto, flex or dense")
    return Visible(tree, device, way)


# In a compiled layer the loop over segments would be unrolled, and every pack compiled anew.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def _attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    visible: Visible,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """query [1, heads, tokens, head size] -> [1, tokens, heads, head size]; key and value may have fewer heads.

    `visible` is required, so a model that does not pass it on fails instead of mixing rows.
    """
    if softcap is not None or s_aux is not None:
        raise TrainingError(
            "this model caps attention scores (softcap) or has attention sinks, which are not done here"
        )
    window = sliding_window if sliding_window is not None and sliding_window < visible.tree.longest else None
    grouped = query.shape[1] != key.shape[1]
    if visible.way == "flex":
        run = _compiled() if query.device.type == "cuda" else flex_attention
        out = run(query, key, value, block_mask=visible.blocks(window), scale=scaling, enable_gqa=grouped)
    elif visible.way == "dense" or window is not None:
        mask = visible.dense(window)
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling, enable_gqa=grouped)
    else:
        out = _Segments.apply(query, key, value, visible.tree.segments, scaling)  # type: ignore[no-untyped-call]
    return out.transpose(1, 2).contiguous(), None


@cache
def _compiled() -> Any:
    return torch.compile(flex_attention, dynamic=True)


class _Segments(torch.autograd.Function):
    """A segment sees itself causally, and each of its ancestors whole.

    So one causal call per segment, and one unmasked call per segment that has descendants, which stand behind it in one
    piece. Softmax over several parts: Online normalizer (arXiv 1805.02867); that a part's gradient needs only the whole's
    output and log-sum-exp: FlashAttention-2 (2307.08691), as ring attention uses it (2310.01889).
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, segments: list[Segment], scale: float | None
    ) -> Tensor:
        out, lse = torch.empty_like(query), query.new_empty(query.shape[:3])
        for s in segments:
            own = slice(s.start, s.end)
            parts = (query[:, :, own], key[:, :, own], value[:, :, own])
            out[:, :, own], lse[:, :, own] = _forward(*parts, is_causal=True, scale=scale)
        for s in segments:
            if s.reach > s.end:
                own, below = slice(s.start, s.end), slice(s.end, s.reach)
                part, log = _forward(query[:, :, below], key[:, :, own], value[:, :, own], scale=scale)
                both = torch.logaddexp(lse[:, :, below], log)
                out[:, :, below] *= (lse[:, :, below] - both).exp()[..., None]
                out[:, :, below] += part * (log - both).exp()[..., None]
                lse[:, :, below] = both
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.segments, ctx.scale = segments, scale
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, out, lse = ctx.saved_tensors
        for_inputs = [torch.empty_like(whole) for whole in (query, key, value)]

        def part(queries: slice, keys: slice, causal: bool) -> Iterator[tuple[Tensor, Tensor]]:
            """Where the gradients of one call belong, and the gradients."""
            given = (gradient[:, :, queries], query[:, :, queries], key[:, :, keys], value[:, :, keys])
            held = (out[:, :, queries], lse[:, :, queries])
            found = _backward(*given, *held, 0.0, causal, scale=ctx.scale)
            places = [whole[:, :, at] for whole, at in zip(for_inputs, (queries, keys, keys), strict=True)]
            return zip(places, found, strict=True)

        for s in ctx.segments:  # together they are all tokens, so this writes and the rest adds
            for place, found in part(slice(s.start, s.end), slice(s.start, s.end), causal=True):
                place.copy_(found)
        for s in ctx.segments:
            if s.reach > s.end:
                for place, found in part(slice(s.end, s.reach), slice(s.start, s.end), causal=False):
                    place.add_(found)
        return (*for_inputs, None, None)


_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward

ALL_ATTENTION_FUNCTIONS.register(NAME, _attention)
