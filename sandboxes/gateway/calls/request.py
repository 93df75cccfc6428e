"""A model call in no dialect."""

from dataclasses import dataclass, field
from typing import Any

from sandboxes.gateway.sessions.recorded import Conversation, Message


@dataclass(frozen=True)
class Request:
    """A call in no dialect.

    `sampling` holds only what the client set, in the engine's names: sampling parameters, and also `response_format`,
    `parallel_tool_calls`, `logprobs` and `top_logprobs`. The engine resolves and checks them.
    """

    conversation: Conversation
    sampling: dict[str, Any]
    body_digest: str
    stream: bool = False
    demonstration: Message | None = None
    logprobs: bool = False
    stop: list[str] = field(default_factory=list)
    n: int = 1  # choices, each a recorded call over the same prompt
    idempotency_key: str | None = None
    is_retry: bool = False  # the SDK says that it sent this before
    id_prefix: str = "chatcmpl-"  # call ids begin with it: the id that the client is given is the call's own
    kept: dict[str, Any] = field(default_factory=dict)  # what the dialect must know of the request to tell it again

    @property
    def top_logprobs(self) -> int | None:
        """How many alternatives per token the client wants beside each log-prob; None where it wants no log-probs."""
        return (self.sampling.get("top_logprobs") or 0) if self.logprobs else None

    @property
    def single_call(self) -> bool:
        """Whether the answer may hold one tool call at most."""
        return self.sampling.get("parallel_tool_calls") is False

    @property
    def plain(self) -> bool:
        """Whether the answer is its text: nothing in it is to be parsed, and no token is to be told apart."""
        return not self.conversation.tools and self.conversation.raw is None and not self.logprobs

    def sampling_of(self, choice: int, resolved: dict[str, Any]) -> dict[str, Any]:
        """`resolved` for one choice: a seed is counted up, as engines do for `n`, or all choices would be equal."""
        seed = resolved.get("seed")
        return {**resolved, "seed": seed + choice} if choice and seed is not None else resolved
