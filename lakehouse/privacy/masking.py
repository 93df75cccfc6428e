"""One episode, looked through as a whole: what is found anywhere in it is replaced everywhere in it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from lakehouse.privacy.chains import Chains
from lakehouse.privacy.detect import Finder
from lakehouse.privacy.pieces import Pieces
from lakehouse.privacy.texts import Replacer, strings
from lakehouse.records import Action, Call, Episode, Evidence, Record

_OF_CALLS = ("request_messages", "response_message", "tools", "sampling")
_OF_ACTIONS = ("arguments", "observation")


@dataclass(frozen=True)
class Rows:
    """An episode with its children."""

    episode: Episode
    calls: Sequence[Call]
    actions: Sequence[Action]
    evidence: Sequence[Evidence]

    @property
    def has_ids(self) -> bool:
        """Whether there are token ids to be looked through."""
        return any(call.prompt_token_ids or call.completion_token_ids for call in self.calls)

    def texts(self) -> Iterator[str]:
        """Every string in its columns of content."""
        if self.episode.error:
            yield self.episode.error
        for call in self.calls:
            for column in _OF_CALLS:
                yield from strings(getattr(call, column))
        for action in self.actions:
            yield from strings(action.arguments)
            yield action.arguments
            yield from strings(action.observation)
        for fact in self.evidence:
            yield from strings(fact.value)


Row = TypeVar("Row", bound=Record)
Counts = dict[str, Counter[str]]  # place, detector, how often


class Search:
    """What is found in the texts and the token ids of one episode. Without `pieces`, in the texts only."""

    def __init__(self, rows: Rows, pieces: Pieces | None, found: Finder) -> None:
        self.rows = rows
        self._chains = Chains(rows.calls, pieces) if pieces is not None and rows.has_ids else None
        self.values = found([*rows.texts(), *(self._chains.texts() if self._chains else ())])

    def replaced(self) -> tuple[Rows, Counts]:
        """The episode without what was found, and where that was."""
        if not self.values:
            return self.rows, {}
        rows = self.rows
        counts: Counts = {}
        replacer = Replacer(self.values)
        calls = self._masked(replacer, counts) if self._chains else rows.calls
        return (
            Rows(
                _changed(rows.episode, ("error",), "episodes", replacer, counts),
                [_changed(call, _OF_CALLS, f"calls/{call.call_index}", replacer, counts) for call in calls],
                [_changed(one, _OF_ACTIONS, f"actions/{one.action_index}", replacer, counts) for one in rows.actions],
                [_changed(fact, ("value",), f"evidence/{fact.name}", replacer, counts) for fact in rows.evidence],
            ),
            counts,
        )

    def _masked(self, replacer: Replacer, counts: Counts) -> list[Call]:
        assert self._chains is not None
        for node, last, detector in self._chains.mask(replacer.forms):
            answered = last >= len(node.call.prompt_token_ids)
            column = "completion_token_ids" if answered else "prompt_token_ids"
            counts.setdefault(f"calls/{node.call.call_index}/{column}", Counter())[detector] += 1
        return [self._chains.masked(node) for node in self._chains.nodes]


def _changed(record: Row, columns: Sequence[str], place: str, replacer: Replacer, counts: Counts) -> Row:
    changes = {}
    for column in columns:
        text, counted = getattr(record, column), Counter[str]()
        if text and (replaced := replacer.document(text, counted)) != text:
            changes[column] = replaced
            counts[f"{place}/{column}"] = counted
    return record.model_copy(update=changes) if changes else record
