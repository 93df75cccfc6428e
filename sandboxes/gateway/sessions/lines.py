"""Credit: how rewards flow back through a session's calls. Along lines of conversation, never along time."""

from collections.abc import Mapping, Sequence

from sandboxes.gateway.sessions.history import History
from sandboxes.gateway.sessions.recorded import Recorded

REWRITTEN = ("compaction", "retokenised")
AGAIN = ("retry", "sibling")  # the prompt of another call


def links(calls: Sequence[Recorded]) -> dict[str, str | None]:
    """What each answered call goes on from; None where a line begins. `calls` are answered, in order of dispatch.

    That is its parent, the call whose tokens its prompt continues; where the history was rewritten, the call whose line
    it takes up. A sub-agent begins a line.
    """
    known: set[str] = set()
    history = History()
    linked: dict[str, str | None] = {}
    for call in calls:
        intent = call.intent
        link = intent.parent_call_id if intent.parent_call_id in known else None
        if intent.fork_reason in REWRITTEN:
            taken = history.takes_up(intent.messages, intent.tools)
            link = taken.intent.call_id if taken else link
        elif intent.fork_reason == "other" and link is None:
            taken = history.said(intent.messages, intent.tools)
            link = taken.intent.call_id if taken else None
        linked[intent.call_id] = link
        known.add(intent.call_id)
        history.add(call)
    return linked


class Lines:
    """The links of a session's answered calls, and the main child of each call.

    The main child is the one with the longest continuation, the earlier one where two are equal: retries, short
    branches and sub-agents are never the main child of a call that goes on elsewhere.
    """

    def __init__(self, calls: Sequence[Recorded]) -> None:
        self._calls = calls
        linked = links(calls)
        children: dict[str | None, list[Recorded]] = {}
        for call in calls:
            children.setdefault(linked[call.intent.call_id], []).append(call)
        self._depth: dict[str, int] = {}
        self._main: dict[str, Recorded | None] = {}
        for call in reversed(calls):  # a child is always dispatched after the answer it goes on from
            main = self._deepest(children.get(call.intent.call_id, []))
            self._main[call.intent.call_id] = main
            self._depth[call.intent.call_id] = 1 + (self._depth[main.intent.call_id] if main else 0)
        heads = children.get(None, [])
        again = [head for head in heads[1:] if _again(head, heads[0])]
        self._head = self._deepest([*heads[:1], *again])

    def main_line(self) -> list[Recorded]:
        """From the root, which is the first answered call, along main children.

        Where the root was retried, or sampled several times, it begins with the try that was continued longest.
        """
        line = []
        call = self._head
        while call is not None:
            line.append(call)
            call = self._main[call.intent.call_id]
        return line

    def credits(self, rewards: Mapping[str, float], episode: float, discount: float) -> dict[str, float]:
        """R = r + discount * R(main child), by call id. An episode's reward is added to the last call of the main line."""
        own = dict(rewards)
        if main := self.main_line():
            last = main[-1].intent.call_id
            own[last] = own.get(last, 0.0) + episode
        credit: dict[str, float] = {}
        for call in reversed(self._calls):
            call_id = call.intent.call_id
            main_child = self._main[call_id]
            below = discount * credit[main_child.intent.call_id] if main_child else 0.0
            credit[call_id] = own.get(call_id, 0.0) + below
        return credit

    def _deepest(self, calls: Sequence[Recorded]) -> Recorded | None:
        return max(calls, key=lambda call: (self._depth[call.intent.call_id], -call.intent.call_index), default=None)


def _again(call: Recorded, first: Recorded) -> bool:
    return call.intent.fork_reason in AGAIN and call.intent.prompt_token_ids == first.intent.prompt_token_ids
