"""What OpenAI's two older routes take alike: who is asked, how tokens are drawn, where to stop, how the answer is told."""

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict


class StreamOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    include_usage: bool = False


class SampledRequest(BaseModel):
    """The shared parameters, in the engine's names too. Bounds of sampling parameters are the engine's to check."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    DRAWING: ClassVar = (
        "temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty", "repetition_penalty",
    )  # fmt: skip

    model: str
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    max_tokens: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None  # a label for the provider's records; it shapes no answer

    @property
    def stops(self) -> list[str]:
        """The stop strings; none where none were given."""
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with the token counts."""
        return bool(self.stream_options and self.stream_options.include_usage)

    def given(self, *more: str) -> dict[str, Any]:
        """The sampling parameters that the client set, these by name among them, with the stop strings."""
        found = {name: getattr(self, name) for name in (*self.DRAWING, *more) if getattr(self, name) is not None}
        return {**found, "stop": self.stops} if self.stops else found
