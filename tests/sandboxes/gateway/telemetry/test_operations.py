"""What operators see of a gateway: metrics, log lines, spans. Never a key, never what was said."""

import asyncio
import io
import json
import logging
import subprocess
import sys

import pytest
from openai import AsyncOpenAI
from prometheus_client.parser import text_string_to_metric_families

from sandboxes.gateway.client import GatewayClient
from sandboxes.gateway.scripted.engine import Scripted
from sandboxes.gateway.telemetry import logs, tracing
from sandboxes.gateway.telemetry.metrics import VERSIONS, Metrics

SECRET = "the prompt that nobody may read"
USER = {"role": "user", "content": SECRET}


@pytest.fixture
def lines():
    """The log as parsed JSON lines, and as text; the process's logging is put back afterwards."""
    root, ours = logging.getLogger(), logging.getLogger("sandboxes.gateway")
    before = root.handlers[:], root.level, ours.level
    stream = io.StringIO()
    logs.configure(stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()], stream.getvalue
    root.handlers, root.level, ours.level = before[0], before[1], before[2]
    logging.getLogger().setLevel(before[1])
    ours.setLevel(before[2])


async def scrape(stack, key=None):
    answer = await stack.http.get(
        "/metrics", headers={"Authorization": f"Bearer {stack.gateway.metrics_key if key is None else key}"}
    )
    assert answer.status_code == 200, answer.text
    samples = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            samples[sample.name.removeprefix("lakeloop_gateway_"), *sorted(sample.labels.values())] = sample.value
    return samples, answer.text


async def test_calls_tokens_and_times_are_counted_and_a_replay_is_counted_once(start):
    async with start() as stack:
        session = await stack.client.start_session("t")
        body = {"model": stack.model, "messages": [USER]}
        for headers in ({}, {"x_stainless_retry_count": "1"}):
            assert (await stack.post("/v1/chat/completions", session.api_key, body, **headers)).status_code == 200
        await stack.post("/v1/chat/completions", session.api_key, {**body, "stream": True})
        await stack.post("/v1/chat/completions", session.api_key, {**body, "nonsense": 1})
        await stack.post("/v1/chat/completions", "no-such-key", body)
        samples, text = await scrape(stack)
        rows = await stack.rows(session)
    assert samples["calls_total", "200", "chat", "generate", "ok"] == 3
    assert samples["calls_total", "400", "chat", "none", "refused"] == 1
    assert samples["calls_total", "401", "chat", "none", "refused"] == 1
    assert samples["replayed_calls_total", "chat"] == 1
    assert samples["recorded_calls_total", "exact"] == len(rows) == 2
    assert samples["prompt_tokens_total", "chat"] == sum(len(row.prompt_token_ids) for row in rows)
    assert samples["sampled_tokens_total", "chat"] == sum(len(row.completion_token_ids) for row in rows)
    assert samples["sampled_tokens_by_version_total", "1"] == samples["sampled_tokens_total", "chat"]
    assert samples["call_seconds_count", "chat"] == 3
    assert samples["first_token_seconds_count", "chat"] == 1
    assert 0 < samples["own_seconds_sum", "chat"] < samples["call_seconds_sum", "chat"]
    assert (samples["open_sessions",], samples["running_calls",], samples["delivered_fraction",]) == (1, 0, 1)
    assert samples["engine_state", stack.gateway.settings.engine, "serving"] == 1
    assert samples["sessions_total", "started"] == 1
    assert samples["journal_seconds_count",] >= 5  # a session, and intent and answer of two calls
    for secret in (session.api_key, session.reward_key, stack.gateway.operator_key, SECRET, session.session_id):
        assert secret not in text


async def test_metrics_open_to_the_metrics_key_and_the_operator_and_that_key_opens_nothing_else(start, tmp_path):
    async with start() as stack:
        session = await stack.client.start_session("t")
        await scrape(stack, stack.gateway.operator_key)
        for key in ("", session.api_key, session.reward_key, "x"):
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            assert (await stack.http.get("/metrics", headers=headers)).status_code == 401
        for path in ("/rl/start_session", "/export_trajectories", "/v1/chat/completions"):
            assert (await stack.post(path, stack.gateway.metrics_key, {})).status_code == 401
    assert (tmp_path / "keys" / "metrics").stat().st_mode & 0o777 == 0o600


def test_labels_stay_bounded_however_many_versions_come():
    metrics = Metrics()
    metrics.sampled_by(range(200))
    assert metrics.exposition().count(b"by_version_total{") == VERSIONS
    assert b'weight_version="199"' in metrics.exposition()


async def test_each_call_and_each_session_event_is_one_line_without_keys_or_content(start, lines):
    async with start(["an answer that nobody may read either"]) as stack:
        session = await stack.client.start_session("t")
        answer = await stack.post(
            "/v1/chat/completions", session.api_key, {"model": stack.model, "messages": [USER], "secret parameter": 1}
        )
        assert answer.status_code == 400
        answer = await stack.post("/v1/chat/completions", session.api_key, {"model": stack.model, "messages": [USER]})
        await stack.client.set_reward(session, 0.5)
        await stack.client.end_session(session)
    parsed, text = lines
    events = [line["event"] for line in parsed()]
    refused, call = [line for line in parsed() if line["event"] == "call"]
    assert (refused["http_status"], refused["outcome"], refused["error"]) == (400, "refused", "BadRequest")
    assert (call["http_status"], call["outcome"], call["session_id"]) == (200, "ok", session.session_id)
    assert call["call_id"] == answer.json()["id"]
    assert call["sampled_tokens"] == answer.json()["usage"]["completion_tokens"]
    assert 0 < call["own_s"] <= call["latency_s"]
    assert {"session started", "session rewarded", "session ended"} <= set(events)
    for secret in (session.api_key, session.reward_key, stack.gateway.operator_key, "nobody may read", "secret param"):
        assert secret not in text()


def test_a_traceback_is_logged_without_what_the_exception_says(lines):
    try:
        raise ValueError(SECRET)
    except ValueError:
        logging.getLogger("sandboxes.gateway.x").exception("it broke")
    parsed, text = lines
    assert parsed()[0]["error"] == "ValueError"
    assert "test_operations.py" in parsed()[0]["traceback"]
    assert SECRET not in text().replace(SECRET.upper(), "")


async def test_a_call_is_a_span_under_the_clients_trace_and_the_engine_is_told_of_it(start):
    trace = pytest.importorskip("opentelemetry.trace")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    async with start(traces=True) as stack:
        stack.gateway.observer.traces._tracer = provider.get_tracer("test")  # the process-wide one can be set only once
        session = await stack.client.start_session("t")
        parent = f"00-{'a' * 32}-{'b' * 16}-01"
        await stack.post(
            "/v1/chat/completions", session.api_key, {"model": stack.model, "messages": [USER]}, traceparent=parent
        )
        await asyncio.sleep(0)
    [span] = spans.get_finished_spans()
    assert trace.format_trace_id(span.context.trace_id) == "a" * 32
    assert span.attributes["lakeloop.session_id"] == session.session_id
    assert span.attributes["gen_ai.usage.output_tokens"] > 0
    assert SECRET not in str(dict(span.attributes))


# The exporter's place is taken by one that prints, as the gateway is run after it.
PRINTING = """
import runpy, sys, types
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

class OTLPSpanExporter(SpanExporter):
    def export(self, spans):
        for span in spans:
            print("exported:", span.name, "of", span.resource.attributes["service.name"], flush=True)
        return SpanExportResult.SUCCESS

stub = sys.modules["opentelemetry.exporter.otlp.proto.http.trace_exporter"] = types.ModuleType("trace_exporter")
stub.OTLPSpanExporter = OTLPSpanExporter
runpy.run_module("flows", run_name="__main__")
"""


async def test_a_gateway_with_traces_sends_its_spans_at_the_latest_when_it_ends(tmp_path):
    pytest.importorskip("opentelemetry.sdk")
    async with Scripted(["hello"]).serve() as engine_url:
        arguments = [
            "gateway",
            "--traces",
            "--port",
            "0",
            "--engine",
            engine_url,
            "--home",
            str(tmp_path),
            "--model",
            "scripted",
        ]
        running = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PRINTING, *arguments, stdout=asyncio.subprocess.PIPE
        )
        try:
            url = (await asyncio.wait_for(running.stdout.readline(), 60)).decode().split()[1]
            async with GatewayClient(url, (tmp_path / "keys" / "operator").read_text().strip()) as client:
                session = await client.start_session("t")
                async with AsyncOpenAI(base_url=client.openai_base_url, api_key=session.api_key) as sdk:
                    await sdk.chat.completions.create(model="scripted", messages=[USER])
            running.terminate()
            told, _ = await asyncio.wait_for(running.communicate(), 30)
        finally:
            if running.returncode is None:
                running.kill()
                await running.wait()
    assert "exported: call chat of lakeloop-gateway" in told.decode().splitlines()


def test_traces_without_the_exporter_name_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ValueError, match=r"pip install 'lakeloop\[otel\]'"):
        tracing.configure()


async def test_without_traces_opentelemetry_is_not_imported(start):
    code = (
        "import sys, sandboxes.gateway.server.serve; print([m for m in sys.modules if m.startswith('opentelemetry')])"
    )
    told = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code], capture_output=True, text=True)
    assert told.stdout.strip() == "[]", told.stderr
