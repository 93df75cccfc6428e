"""Where a call stands in the session's tree of calls."""

from array import array
from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from zlib import crc32

from sandboxes.gateway.sessions.history import History
from sandboxes.gateway.sessions.recorded import Conversation, Recorded


@dataclass(frozen=True)
class Place:
    """Parent, segment, and why a segment was started (None where the call continues its parent)."""

    parent_call_id: str | None
    segment: int
    fork_reason: str | None


class Tree:
    """The calls of one session, indexed. Reads `calls` as it grows; placing one costs a pass over the prompt."""

    def __init__(self, calls: Sequence[Recorded]) -> None:
        self._calls = calls
        self._seen = 0
        self._running: list[Recorded] = []
        self._root: Recorded | None = None
        self._lengths: list[int] = []  # sorted, of what follows
        self._answered: dict[int, dict[int, list[Recorded]]] = {}  # by length and checksum of prompt and completion
        self._prompts: dict[int, list[Recorded]] = {}  # answered, by checksum of the prompt
        self._continued: set[str] = set()  # parents of answered calls
        self._last_segment = -1
        self._history = History()

    def place(self, prompt: list[int], conversation: Conversation, *, retokenised: bool) -> Place:
        """The parent is the longest answered call whose prompt and completion ids are a true prefix of `prompt`.

        A call that is the first to continue its parent stays in the parent's segment. Calls that failed or were
        cancelled take no place, so a second try stands where the first did.
        """
        self._catch_up()
        if self._root is None and not self._running:
            return Place(None, 0, "root")
        parent = self._parent(prompt)
        parent_id = parent.intent.call_id if parent else None
        taken = self._continued | {call.intent.parent_call_id for call in self._running}
        if parent is not None and parent_id not in taken:
            return Place(parent_id, parent.intent.segment, None)
        segment = 1 + max([self._last_segment, *(call.intent.segment for call in self._running)])
        if retokenised:
            return Place(parent_id, segment, "retokenised")
        if self._same_prompt(prompt):
            return Place(parent_id, segment, "retry")
        root = self._root or self._running[0]
        return Place(parent_id, segment, self._history.fork_reason(conversation, root))

    def _catch_up(self) -> None:
        """Take in what was dispatched, answered or failed since."""
        self._running += self._calls[self._seen :]
        self._seen = len(self._calls)
        for call in self._running:
            if call.answered:
                self._index(call)
        self._running = [call for call in self._running if call.answer is None]

    def _index(self, call: Recorded) -> None:
        intent = call.intent
        if self._root is None or intent.call_index < self._root.intent.call_index:
            self._root = call
        [size], [checksum] = [len(call.all_token_ids)], checksums(call.all_token_ids, [len(call.all_token_ids)])
        if size not in self._answered:
            insort(self._lengths, size)
        self._answered.setdefault(size, {}).setdefault(checksum, []).append(call)
        [checksum] = checksums(intent.prompt_token_ids, [len(intent.prompt_token_ids)])
        self._prompts.setdefault(checksum, []).append(call)
        if intent.parent_call_id:
            self._continued.add(intent.parent_call_id)
        self._last_segment = max(self._last_segment, intent.segment)
        self._history.add(call)

    def _parent(self, prompt: list[int]) -> Recorded | None:
        sizes = list(takewhile(lambda size: size < len(prompt), self._lengths))
        found = zip(sizes, checksums(prompt, sizes), strict=True)
        for size, checksum in reversed(list(found)):
            for call in self._answered[size].get(checksum, ()):  # the checksum finds, comparing decides
                if prompt[:size] == call.all_token_ids:
                    return call
        return None

    def _same_prompt(self, prompt: list[int]) -> bool:
        [checksum] = checksums(prompt, [len(prompt)])
        twins = [*self._prompts.get(checksum, ()), *self._running]
        return any(call.intent.prompt_token_ids == prompt for call in twins)


def checksums(ids: list[int], sizes: Iterable[int]) -> list[int]:
    """The checksum of each prefix of these sizes, which ascend; one pass over the ids."""
    raw = memoryview(array("I", ids)).cast("B")
    width = array("I").itemsize
    at = checksum = 0
    found = []
    for size in sizes:
        checksum = crc32(raw[at * width : size * width], checksum)
        at = size
        found.append(checksum)
    return found
