"""Prometheus metrics. Labels are bounded: dialects, statuses, engines, and the weight versions seen last.

Several worker processes share a folder of memory-mapped files (`PROMETHEUS_MULTIPROC_DIR`, set by their parent before they
start); any of them then answers for all.
"""

import os
import warnings
from collections import Counter as Tally
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

SHARED = "PROMETHEUS_MULTIPROC_DIR"
VERSIONS = 32  # weight versions told apart; the one unused longest goes
CALL_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
OWN_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1)
ENGINE_STATES = ("serving", "draining", "paused", "stale", "broken")


class Metrics:
    """One process's metrics, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._versions: OrderedDict[str, None] = OrderedDict()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"lakeloop_gateway_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: Iterable[float], *labels: str) -> Histogram:
            return Histogram(f"lakeloop_gateway_{name}", text, labels, buckets=tuple(buckets), registry=registry)

        def gauge(
            name: str, text: str, *labels: str, mode: Literal["livesum", "livemin", "livemax"] = "livesum"
        ) -> Gauge:
            return Gauge(f"lakeloop_gateway_{name}", text, labels, registry=registry, multiprocess_mode=mode)

        # http_status 499: the client went away. outcome: the failure taxonomy, or `refused` before the call began.
        self.calls = counter("calls", "Requests for model calls", "dialect", "http_status", "outcome", "token_route")
        self.recorded = counter("recorded_calls", "Recorded calls, by whether their tokens are exact", "token_status")
        self.replayed = counter("replayed_calls", "Calls answered again out of the journal", "dialect")
        self.prompt_tokens = counter("prompt_tokens", "Prompt tokens", "dialect")
        self.sampled_tokens = counter("sampled_tokens", "Sampled tokens", "dialect")
        self.by_version = counter("sampled_tokens_by_version", "Sampled tokens by weight version", "weight_version")
        self.latency = histogram("call_seconds", "From request to recorded answer", CALL_S, "dialect")
        self.first_token = histogram(
            "first_token_seconds", "From request to first content, streams only", CALL_S, "dialect"
        )
        self.own = histogram("own_seconds", "A call's time less its waiting for the engine", OWN_S, "dialect")
        self.journal = histogram("journal_seconds", "One piece of journal work, queueing included", OWN_S)
        self.sessions = counter("sessions", "What became of sessions", "event")
        self.open_sessions = gauge("open_sessions", "Sessions that are open")
        self.running_calls = gauge("running_calls", "Calls that are running")
        self.delivered = gauge(
            "delivered_fraction", "Recorded calls with exact tokens, of all since the start", mode="livemin"
        )
        self.engines = gauge("engine_state", "1 for the state each engine is in", "engine", "state", mode="livemax")
        self._exact = self._all = 0

    def call_recorded(self, *, exact: bool) -> None:
        """One more recorded call, for the delivered fraction."""
        self._all += 1
        self._exact += exact
        self.recorded.labels("exact" if exact else "missing").inc()
        self.delivered.set(self._exact / self._all)

    def sampled_by(self, versions: Iterable[int]) -> None:
        """Tokens by the version that sampled them."""
        for version, tokens in Tally(versions).items():
            label = str(version)
            self._versions[label] = None
            self._versions.move_to_end(label)
            self.by_version.labels(label).inc(tokens)
        while len(self._versions) > VERSIONS:
            oldest, _ = self._versions.popitem(last=False)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # files that workers share keep the label until the next start
                self.by_version.remove(oldest)

    def engine_states(self, states: Mapping[str, str]) -> None:
        """The state of each engine, by URL."""
        for url, now in states.items():
            for state in ENGINE_STATES:
                self.engines.labels(url, state).set(state == now)

    def exposition(self) -> bytes:
        """In Prometheus's text format, of all workers where there are several."""
        if not os.environ.get(SHARED):
            return generate_latest(self._registry)
        everybody = CollectorRegistry()
        MultiProcessCollector(everybody)  # type: ignore[no-untyped-call]
        return generate_latest(everybody)
