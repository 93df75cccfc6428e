"""The token ids of one episode's calls, looked through and masked as one tree.

A call's prompt begins with the ids of its parent's prompt and completion, and still does so when it is masked: what is
found in a call, also across the border to its parent, is masked in the parent and so in all of the parent's children.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lakehouse.privacy.pieces import Pieces, ends
from lakehouse.records import Call

OVERLAP = 1000  # bytes of the parent that are looked through together with what a call adds


@dataclass(eq=False)
class Node:
    """One call. The whole is its prompt and completion; its own part is what its parent's whole does not have."""

    call: Call
    parent: "Node | None"
    whole: bytes
    ends: np.ndarray  # of each token of the whole, in bytes
    masked: np.ndarray  # bool, per token of its own part

    @property
    def own_from(self) -> int:
        """The first token of its own part."""
        return len(self.ends) - len(self.masked)

    @property
    def added_from(self) -> int:
        """The first byte of its own part."""
        return int(self.ends[self.own_from - 1]) if self.own_from else 0

    def mask(self, first: int, last: int) -> None:
        """Mask these tokens of the whole, whoever of the line they belong to."""
        own = self.own_from
        if last >= own:
            self.masked[max(first - own, 0) : last + 1 - own] = True
        if first < own and self.parent is not None:
            self.parent.mask(first, min(last, own - 1))

    def all_masked(self) -> np.ndarray:
        """Per token of the whole, once all calls have been looked through."""
        return self.masked if self.parent is None else np.concatenate([self.parent.all_masked(), self.masked])


class Chains:
    """The calls of one episode as a tree."""

    def __init__(self, calls: Sequence[Call], pieces: Pieces) -> None:
        self._pieces = pieces
        self.nodes: list[Node] = []
        by_id: dict[str, Node] = {}
        for call in sorted(calls, key=lambda one: one.call_index):
            node = self._node(call, by_id.get(call.parent_call_id or ""))
            by_id[call.call_id] = node
            self.nodes.append(node)

    def _node(self, call: Call, parent: Node | None) -> Node:
        ids = call.prompt_token_ids + call.completion_token_ids
        if parent is not None:
            known = parent.call.prompt_token_ids + parent.call.completion_token_ids
            if call.prompt_token_ids[: len(known)] != known:
                parent = None  # not what `parent_call_id` promises: then it stands for itself
        if parent is None:
            added = self._pieces.of(ids)
            return Node(call, None, b"".join(added), ends(added), np.zeros(len(ids), bool))
        added = self._pieces.of(ids[len(parent.ends) :])
        before = len(parent.whole)
        return Node(
            call,
            parent,
            parent.whole + b"".join(added),
            np.concatenate([parent.ends, ends(added) + before]),
            np.zeros(len(added), bool),
        )

    def texts(self) -> Iterator[str]:
        """What each call adds, with the end of what was before."""
        for node in self.nodes:
            yield node.whole[max(0, node.added_from - OVERLAP) :].decode(errors="surrogateescape")

    def mask(self, forms: Mapping[str, str]) -> Iterator[tuple[Node, int, str]]:
        """Mask every token that a form of a value touches. Gives the call, the last token, and the value's detector."""
        wanted = [(form.encode(errors="surrogateescape"), detector) for form, detector in forms.items()]
        for node in self.nodes:
            for form, detector in wanted:
                at = node.whole.find(form, max(0, node.added_from - len(form) + 1))
                while at >= 0:
                    first, last = np.searchsorted(node.ends, [at, at + len(form) - 1], side="right")
                    node.mask(int(first), int(last))
                    yield node, int(last), detector
                    at = node.whole.find(form, at + 1)

    def masked(self, node: Node) -> Call:
        """The call with its tokens replaced; log-probs of replaced tokens are 0, which `redacted` says are none."""
        flags = node.all_masked()
        if not flags.any():
            return node.call
        call, border = node.call, len(node.call.prompt_token_ids)
        ids = np.array(call.prompt_token_ids + call.completion_token_ids, np.int64)
        ids[flags] = self._pieces.masked
        answered = flags[border:]
        changes: dict[str, object] = {
            "prompt_token_ids": ids[:border].tolist(),
            "completion_token_ids": ids[border:].tolist(),
        }
        if answered.any():
            changes["redacted"] = answered.astype(int).tolist()
            if call.logprobs is not None:
                kept = zip(call.logprobs, answered, strict=True)
                changes["logprobs"] = [0.0 if gone else value for value, gone in kept]
        return call.model_copy(update=changes)
