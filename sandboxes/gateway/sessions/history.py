"""How conversations relate where their tokens do not: a rewritten history, another agent, or neither."""

from collections import deque
from collections.abc import Iterator, Sequence

from lakehouse.records import digest, dumps
from sandboxes.gateway.sessions.recorded import Conversation, Message, Recorded, canonical, compared

QUOTED = 40  # characters of an answer that a summary must hold to be recognised
REMEMBERED = 64  # answers whose text is looked for: a summary is used soon after it was written


class History:
    """What the answered calls of a session said, in the order they are added."""

    def __init__(self) -> None:
        self._by_answer: dict[str, dict[str, Recorded]] = {}  # the latest that said exactly this, by head
        self._by_head: dict[str, Recorded] = {}  # the latest with this system message, tools and first user message
        self._recent: deque[Recorded] = deque(maxlen=REMEMBERED)
        self._root: Recorded | None = None

    def add(self, call: Recorded) -> None:
        """An answered call."""
        assert call.answer is not None
        assert call.answer.message is not None
        self._root = self._root or call
        said, head = call.answer.message, _head(call.intent.messages, call.intent.tools)
        if said.get("content") or said.get("tool_calls"):
            self._by_answer.setdefault(_turn(said), {})[head] = call
        self._by_head[head] = call
        self._recent.append(call)

    def fork_reason(self, conversation: Conversation, root: Recorded) -> str:
        """Why a call exists that is no plain continuation, where neither its tokens nor its prompt tell.

        compaction: earlier turns were dropped, cut or summarised. Told by a turn of ours among turns that are not those
        it stood among, by a summary of ours, or by the same system message, tools and first user message.
        subagent: none of that, and another system message or other tools than the root's, or a task that a tool call
        of ours handed over. other: a branch that goes on differently from an earlier point, a whole conversation under
        another system message or with other tools, or a new conversation.
        """
        messages, tools = conversation.messages, conversation.tools
        said = self.said(messages, tools)
        if said is not None:
            return "other" if _whole(messages, said) else "compaction"
        if self.takes_up(messages, tools) is not None:
            return "compaction"
        alike = _setting(messages, tools) == _setting(root.intent.messages, root.intent.tools)
        return "other" if alike and not self._handed_over(messages) else "subagent"

    def takes_up(self, messages: Sequence[Message], tools: Sequence[Message]) -> Recorded | None:
        """The answered call whose line this conversation goes on with, by what is said rather than by tokens.

        The call of the last turn that is an answer of ours; else the one whose answer is quoted (a summary), in the
        system message or under the root's; else the latest with the same system message, tools and first user message.
        """
        return self.said(messages, tools) or self._quoted(messages, tools) or self._by_head.get(_head(messages, tools))

    def said(self, messages: Sequence[Message], tools: Sequence[Message]) -> Recorded | None:
        """The call of the last turn that is an answer of ours; of several that said the same, one with this head."""
        for message in reversed(messages):
            if message["role"] == "assistant" and (calls := self._by_answer.get(_turn(message))):
                return calls.get(_head(messages, tools)) or list(calls.values())[-1]
        return None

    def _quoted(self, messages: Sequence[Message], tools: Sequence[Message]) -> Recorded | None:
        root = self._root
        mine = root is not None and _setting(messages, tools) == _setting(root.intent.messages, root.intent.tools)
        roles = ("system", "user") if mine else ("system",)  # a critic, too, is told what was said, but by its user
        texts = [text for message in messages if message["role"] in roles for text in _texts(message)]
        for call in reversed(self._recent):
            said = "".join(_texts(call.answer.message)).strip() if call.answer and call.answer.message else ""
            if len(said) >= QUOTED and any(said in text for text in texts):
                return call
        return None

    def _handed_over(self, messages: Sequence[Message]) -> bool:
        """Whether the first user message is what a tool call of ours said."""
        first = _first(messages, "user")
        task = dumps(first["content"])[1:-1] if first else ""  # as it stands inside JSON arguments
        return len(task) >= QUOTED // 2 and any(task in arguments for arguments in self._arguments())

    def _arguments(self) -> Iterator[str]:
        for call in self._recent:
            assert call.answer is not None
            for tool_call in (call.answer.message or {}).get("tool_calls") or []:
                yield tool_call["function"]["arguments"]


def _whole(messages: Sequence[Message], call: Recorded) -> bool:
    """Whether everything that `call` read and said, its system message aside, is there unchanged and in order."""
    assert call.answer is not None
    assert call.answer.message is not None
    turns = [_turn(message) for message in messages if message["role"] != "system"]
    past = [_turn(message) for message in [*call.intent.messages, call.answer.message] if message["role"] != "system"]
    return turns[: len(past)] == past


def _turn(message: Message) -> str:
    return digest(compared(canonical(message)))


def _setting(messages: Sequence[Message], tools: Sequence[Message]) -> bytes:
    return compared([_first(messages, "system"), list(tools)])


def _head(messages: Sequence[Message], tools: Sequence[Message]) -> str:
    return digest(compared([_first(messages, "system"), _first(messages, "user"), list(tools)]))


def _first(messages: Sequence[Message], role: str) -> Message | None:
    return next((canonical(message) for message in messages if message["role"] == role), None)


def _texts(message: Message) -> list[str]:
    """The texts of a message, whose content is a text, parts, or nothing."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return [content]
    return [str(part.get("text") or "") for part in content]
