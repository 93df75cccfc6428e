"""OpenTelemetry spans, where they are asked for: one per call, and the engine's spans below it.

Only OpenTelemetry's API is used, and only when traces are on. `configure` sends spans with the SDK (the extra `otel`) unless
somebody, such as `opentelemetry-instrument`, has set up a provider before.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.trace import Span

MISSING = "traces need the packages of the extra `otel`: pip install 'lakeloop[otel]'"


class Traces:
    """Starts spans under whatever trace the client's headers name."""

    def __init__(self) -> None:
        try:
            from opentelemetry import propagate, trace  # noqa: PLC0415 - off costs nothing
        except ImportError as error:
            raise ValueError(MISSING) from error
        self._propagate, self._trace = propagate, trace
        self._tracer = trace.get_tracer("lakeloop.gateway")

    def begin(self, dialect: str, headers: Mapping[str, str], onward: dict[str, str]) -> "Span":
        """A span of one call. `onward` is given the headers that tell the engine of it."""
        span = self._tracer.start_span(
            f"call {dialect}", context=self._propagate.extract(headers), kind=self._trace.SpanKind.SERVER
        )
        self._propagate.inject(onward, context=self._trace.set_span_in_context(span))
        return span

    def end(self, span: "Span", facts: Mapping[str, Any], *, failed: bool) -> None:
        """Close a span with these facts about the call."""
        for name, value in facts.items():
            if value is not None:
                span.set_attribute(NAMES.get(name, f"lakeloop.{name}"), value)
        if failed:
            span.set_status(self._trace.StatusCode.ERROR)
        span.end()


# OpenTelemetry's names for what other tools show of a model call.
NAMES = {
    "dialect": "gen_ai.operation.name",
    "prompt_tokens": "gen_ai.usage.input_tokens",
    "sampled_tokens": "gen_ai.usage.output_tokens",
    "http_status": "http.response.status_code",
    "call_id": "gen_ai.response.id",
}


def configure() -> None:
    """Send spans to OTEL_EXPORTER_OTLP_ENDPOINT, unless a provider is set already. ValueError where the extra is missing."""
    try:
        from opentelemetry import trace  # noqa: PLC0415 - off costs nothing
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError as error:
        raise ValueError(MISSING) from error
    if isinstance(trace.get_tracer_provider(), TracerProvider):
        return
    provider = TracerProvider(resource=Resource.create({"service.name": "lakeloop-gateway"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
