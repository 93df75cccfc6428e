"""What an engine sampled for one call, and whether it is as it must be to be trained on."""

import math
from dataclasses import dataclass, field
from types import NoneType
from typing import Any

from sandboxes.gateway.engines.labels import claimed
from sandboxes.gateway.errors import EngineTrouble
from sandboxes.gateway.sessions.recorded import UNKNOWN

NO_LOGPROB = -9999.0  # what the engine sends for a log-prob that is NaN, minus infinity or absent
MOST_IDS = 2**31  # no vocabulary is larger
ROUNDING = 1e-3  # a log-prob may be over 0 by as much as arithmetic makes it


@dataclass
class Completion:
    """What the engine sampled, as it grows. One log-prob per id, in nats; spans as (label, start, end)."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    spans: list[tuple[str, int, int]] = field(default_factory=list)
    text: str | None = None  # of `shown`, up to a stop string; None where the engine was not asked or does not tell
    _entries: list[Any] = field(default_factory=list)  # log-probs in the engine's own form
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    fault: str | None = None  # why these tokens may not be trained on, where the route that got them knows

    @property
    def ended_turn(self) -> bool:
        """Whether the last id is an end-of-turn token (not a stop string, not the length limit)."""
        return self.finish_reason == "stop" and not isinstance(self.stop_reason, str)

    def end_turn(self, end: int | None) -> None:
        """Tell apart what an engine calls `tool_calls`: the model ended its turn, unless its last id is no `end`."""
        if self.finish_reason == "tool_calls":
            self.finish_reason = "stop" if end is None or self.token_ids[-1:] == [end] else "length"

    @property
    def undecided(self) -> str | None:
        """The label of the last tokens' weights where these were not proven yet."""
        last = self.spans[-1][0] if self.spans else ""
        return last if claimed(last) else None

    def decide(self, label: str | None) -> None:
        """Give tokens from between a swap and its proof their version. `label`: of the weights now, None where nobody knows.

        They have it where the very next label is that version's number. Else nobody knows what sampled them.
        """
        for at in reversed(range(len(self.spans))):
            before, start, end = self.spans[at]
            if label is not None and claimed(before) == label:
                self.spans[at] = (label, start, end)
            label = before

    @property
    def shown(self) -> list[int]:
        """The ids a reader sees: all but the end-of-turn token, which the engine's derender would print."""
        return self.token_ids[:-1] if self.ended_turn else self.token_ids

    def entries(self, begin: int = 0, end: int | None = None) -> list[dict[str, Any]]:
        """Log-probs in the engine's own form, for clients that asked for them."""
        return [_sendable(entry) for entry in self._entries[begin:end]]

    def add(self, choice: dict[str, Any]) -> list[int]:
        """Take in one choice, whole or a stream's next part. Returns the new ids.

        EngineTrouble, and nothing taken in, where these are no ids, log-probs or spans: the journal, the tree and the
        lake hold what comes through here, and need not look again.
        """
        try:
            new: list[int] = choice.get("token_ids") or []
            content = (choice.get("logprobs") or {}).get("content") or []
            logprobs = [entry.get("logprob") for entry in content]
            spans = [(str(span["version"]), span["start"], span["end"]) for span in choice.get("weight_versions") or []]
            bounds = [bound for span in spans for bound in span[1:]]
        except (AttributeError, KeyError, TypeError) as error:
            raise EngineTrouble(f"the engine's answer has another form than its route's: {error!r}") from error
        if not (_all(new, int) and _all(bounds, int) and _all(logprobs, float, int, NoneType)):
            raise EngineTrouble("the engine's answer has token ids, log-probs or versions that are no numbers")
        if new and not 0 <= min(new) <= max(new) < MOST_IDS:
            raise EngineTrouble(f"the engine's answer has token ids from {min(new)} to {max(new)}, which no model has")
        self.token_ids += new
        self.logprobs += [math.nan if one is None else one for one in logprobs] if None in logprobs else logprobs
        self._entries += content
        self.spans += spans
        if isinstance(text := choice.get("text"), str):
            self.text = (self.text or "") + text
        self.finish_reason = choice.get("finish_reason") or self.finish_reason
        self.stop_reason = choice.get("stop_reason") if choice.get("stop_reason") is not None else self.stop_reason
        return new


def token_fields(completion: Completion, vocabulary: int | None = None) -> dict[str, Any]:
    """Ids, log-probs and one weight version per id; `missing`, with the cause, where one is not as it must be."""
    ids, logprobs = completion.token_ids, completion.logprobs
    versions = [UNKNOWN] * len(ids)
    for label, start, end in completion.spans:
        if label.isdecimal():
            versions[start:end] = [int(label)] * len(versions[start:end])
    error = completion.fault or _fault(completion, versions, vocabulary)
    return {
        "completion_token_ids": ids,
        "logprobs": logprobs if len(logprobs) == len(ids) and _numbers(logprobs) else None,
        "weight_versions": versions,
        "token_status": "missing" if error else "exact",
        "error": error,
    }


def _all(values: Any, *kinds: type) -> bool:
    """Whether it is a list of these kinds; without a step of Python's per value."""
    return isinstance(values, list) and set(map(type, values)) <= set(kinds)


def _numbers(logprobs: list[float]) -> bool:
    """Whether all are; without a step of Python's per token."""
    return not logprobs or (math.isfinite(sum(logprobs)) and min(logprobs) > NO_LOGPROB)


def _fault(completion: Completion, versions: list[int], vocabulary: int | None) -> str | None:
    """The first invariant that does not hold, in words."""
    ids, logprobs = completion.token_ids, completion.logprobs
    if not ids or len(logprobs) != len(ids):
        return f"{len(ids)} token ids and {len(logprobs)} log-probs came back"
    if not _numbers(logprobs):
        at = next(at for at, value in enumerate(logprobs) if not math.isfinite(value) or value <= NO_LOGPROB)
        return f"the log-prob of token {at} is not a number"
    if max(logprobs) > ROUNDING:
        return f"the log-prob of token {logprobs.index(max(logprobs))} is {max(logprobs)}: a probability over 1"
    if vocabulary is not None and max(ids) >= vocabulary:
        return f"token id {max(ids)} is outside the vocabulary of {vocabulary}"
    if UNKNOWN in versions:
        labels = sorted({label for label, _, _ in completion.spans})
        return f"weight version labels {labels} do not give every token a registered version"
    return None


def _sendable(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry whose log-probs are numbers: JSON has none for NaN, and neither the parser nor the client takes one."""
    value = entry.get("logprob")
    known = value is not None and math.isfinite(value)
    return {
        **entry,
        "logprob": value if known else NO_LOGPROB,
        "top_logprobs": [_sendable(one) for one in entry.get("top_logprobs") or []],
    }
