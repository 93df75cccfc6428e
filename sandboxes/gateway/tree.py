"""Where a call stands in the session's tree of calls."""

from collections.abc import Sequence
from dataclasses import dataclass

from sandboxes.gateway.facts import Conversation
from sandboxes.gateway.recorded import Recorded, canonical


@dataclass(frozen=True)
class Place:
    """Parent, segment, and why a segment was started (None where the call continues its parent)."""

    parent_call_id: str | None
    segment: int
    fork_reason: str | None


def place(calls: Sequence[Recorded], prompt: list[int], conversation: Conversation, *, retokenised: bool) -> Place:
    """The parent is the longest answered call whose prompt and completion ids are a true prefix of `prompt`.

    A call that is the first to continue its parent stays in the parent's segment. Calls that failed or were cancelled
    take no place, so a second try stands where the first did.
    """
    live = [call for call in calls if call.live]
    parent = _parent(live, prompt)
    siblings = [call for call in live if parent is not None and call.intent.parent_call_id == parent.intent.call_id]
    if parent is not None and not siblings:
        return Place(parent.intent.call_id, parent.intent.segment, None)
    if not live:
        return Place(None, 0, "root")
    segment = 1 + max(call.intent.segment for call in live)
    parent_id = parent.intent.call_id if parent else None
    return Place(parent_id, segment, "retokenised" if retokenised else _reason(live, prompt, conversation))


def _parent(live: Sequence[Recorded], prompt: list[int]) -> Recorded | None:
    known = [(len(call.all_token_ids), call) for call in live if call.answered]
    fits = [(size, call) for size, call in known if size < len(prompt) and prompt[:size] == call.all_token_ids]
    return max(fits, key=lambda pair: pair[0], default=(0, None))[1]


def _reason(live: Sequence[Recorded], prompt: list[int], conversation: Conversation) -> str:
    """Why a call that continues nothing exists. `retry`: the very prompt of another call. `subagent`: another system
    message or other tools than the root's. `compaction`: the root's system and first user message, another history."""
    if any(call.intent.prompt_token_ids == prompt for call in live):
        return "retry"
    root = live[0].intent
    other_head = _first(conversation.messages, "system") != _first(root.messages, "system")
    if other_head or list(conversation.tools) != root.tools:
        return "subagent"
    if _first(conversation.messages, "user") == _first(root.messages, "user"):
        return "compaction"
    return "other"


def _first(messages: Sequence[dict[str, object]], role: str) -> dict[str, object] | None:
    return next((canonical(message) for message in messages if message["role"] == role), None)
