"""The gateway against the engine called directly, and against LiteLLM's proxy: `lakeloop bench gateway`.

Every ratio is of runs that took turns on this machine. `throughput_ratio`: tokens per second at saturation through the
gateway over the engine's own chat completions, on the real engine. `added_ms.N`: latency through the gateway less the
engine's own at N sessions at a time, there too. What an engine's noise would hide is measured before a replay engine
that answers at once: calls per second and core (processor time of the proxy's own processes), LiteLLM's on the same
upstream, memory over a long run, and what the journal costs. LiteLLM records nothing.
"""

import asyncio
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import orjson

from benchmarks import peers
from benchmarks.load import Load, Target, drive, paired
from benchmarks.processes import Process, free_port, python, server
from benchmarks.report import arguments, middle, percentile, say, tell
from lakehouse.home import home
from tasks.serving import launch
from tasks.serving.models import resolve
from tasks.stack.settings import Settings

SESSIONS = (1, 16, 64)
LITELLM = ("litellm[proxy]==1.83.0",)
TOKENS = 64


def main() -> None:
    given = arguments(__doc__)
    with tempfile.TemporaryDirectory(prefix="lakeloop-bench-") as folder:
        rooms = [Path(folder) / name for name in ("replay", "engine")]
        for room in rooms:
            room.mkdir()
        before_replay = asyncio.run(replayed(rooms[0], quick=given.quick))
        on_engine = asyncio.run(engine(rooms[1], quick=given.quick))
    tell({**on_engine, **before_replay})


async def engine(folder: Path, *, quick: bool) -> dict[str, Any]:
    """Through the gateway against the engine's own chat completions, in turns on one real engine."""
    calls, rounds = (32, 1) if quick else (128, 4)
    added: dict[str, dict[str, float]] = {}
    first: dict[str, float] = {}
    ratio = 0.0
    with ExitStack() as stack:
        direct = stack.enter_context(real_engine(folder))
        through, _ = stack.enter_context(gateway(direct.url.removesuffix("/v1"), direct.model, folder, max(SESSIONS)))
        for target in (direct, through):
            await drive(target, clients=4, calls=8, max_tokens=TOKENS, tag="warm-up")
        for sessions in SESSIONS:
            say(f"engine: {sessions} sessions at a time")
            for stream in (False, True):
                size = max(8, calls // 4) if sessions == 1 else calls
                runs = {
                    name: partial(drive, target, clients=sessions, calls=size, max_tokens=TOKENS, stream=stream)
                    for name, target in (("through", through), ("direct", direct))
                }
                found = await paired(runs, rounds)
                if stream:
                    first[str(sessions)] = _added(found, 0.5, "first_ms")
                else:
                    added[str(sessions)] = {"p50": _added(found, 0.5), "p99": _added(found, 0.99)}
                    ratio = middle([a.tokens_per_s / b.tokens_per_s for a, b in zip(*found.values(), strict=True)])
    return {"throughput_ratio": round(ratio, 3), "added_ms": added, "added_ttft_ms": first}


async def replayed(folder: Path, *, quick: bool) -> dict[str, Any]:
    """The gateway and LiteLLM's proxy before an engine that answers at once."""
    calls, rounds = (200, 1) if quick else (1000, 3)
    port = free_port()
    direct = Target(f"http://127.0.0.1:{port}/v1", "replay")
    with ExitStack() as stack:
        command = python("-m", "benchmarks.replay", str(port), str(TOKENS))
        stack.enter_context(server(command, f"http://127.0.0.1:{port}/health", log=folder / "replay.log"))
        ours, own = stack.enter_context(gateway(f"http://127.0.0.1:{port}", "replay", folder, 64))
        peer, theirs = stack.enter_context(litellm(direct, folder))
        targets = {"direct": direct, "ours": ours, "litellm": peer}
        for target in targets.values():
            await drive(target, clients=8, calls=50, max_tokens=TOKENS, tag="warm-up")
        say("replay: one call at a time")
        alone = await paired(
            {n: partial(drive, t, clients=1, calls=calls // 5, max_tokens=TOKENS) for n, t in targets.items()}, rounds
        )
        say("replay: sixteen at a time")
        rate = {
            name: await _rate(targets[name], process, calls) for name, process in (("ours", own), ("litellm", theirs))
        }
        growth, bytes_per_call = await _long_run(ours, own, folder, 500 if quick else 10_000)
    added = {name: _p50(alone[name]) - _p50(alone["direct"]) for name in ("ours", "litellm")}
    return {
        "replay_added_ms": round(added["ours"], 2),
        "litellm_added_ms": round(added["litellm"], 2),
        "litellm_added_ratio": round(added["litellm"] / added["ours"], 1),
        "calls_per_s_per_core": round(rate["ours"], 1),
        "litellm_calls_per_s_per_core": round(rate["litellm"], 1),
        "litellm_rate_ratio": round(rate["ours"] / rate["litellm"], 1),
        "rss_growth_mib": round(growth, 1),
        "journal_bytes_per_call": round(bytes_per_call),
    }


async def _rate(target: Target, process: Process, calls: int) -> float:
    """Calls per second that one core could carry: calls over the processor time they took."""
    before = process.cpu_s
    await drive(target, clients=16, calls=calls, max_tokens=TOKENS)
    return calls / (process.cpu_s - before)


async def _long_run(target: Target, process: Process, folder: Path, calls: int) -> tuple[float, float]:
    """Growth of memory in MiB per 10,000 calls once the first quarter is over, and journal bytes per call."""
    say(f"replay: {calls} calls")
    await drive(target, clients=16, calls=calls // 4, max_tokens=TOKENS)
    rss, size = process.rss_mib, _journal_bytes(folder)
    await drive(target, clients=16, calls=calls, max_tokens=TOKENS)
    return (process.rss_mib - rss) * 10_000 / calls, (_journal_bytes(folder) - size) / calls


def _journal_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in (folder / "gateway").glob("journal.db*"))


def _p50(loads: list[Load]) -> float:
    return middle([percentile(load.latency_ms, 0.5) for load in loads])


def _added(found: dict[str, list[Load]], share: float, what: str = "latency_ms") -> float:
    """Milliseconds more through the gateway, at this percentile; the median over the paired rounds."""
    pairs = zip(found["through"], found["direct"], strict=True)
    return round(
        middle([percentile(getattr(a, what), share) - percentile(getattr(b, what), share) for a, b in pairs]), 1
    )


@contextmanager
def real_engine(folder: Path) -> Iterator[Target]:
    """vLLM with `tiny`; or the engine at LAKELOOP_ENGINE_URL, which serves LAKELOOP_MODEL."""
    url = os.environ.get("LAKELOOP_ENGINE_URL")
    if url:
        yield Target(f"{url.rstrip('/')}/v1", os.environ.get("LAKELOOP_MODEL", "tiny"))
        return
    port = free_port()
    found = launch.engine(
        resolve("tiny", home()), name="tiny", port=port, python=Settings().engine_python, max_model_len=2048
    )
    say("starting the engine")
    with server(
        found.command,
        f"http://127.0.0.1:{port}/health",
        log=folder / "engine.log",
        deadline_s=300,
        env=found.environment,
    ):
        yield Target(f"http://127.0.0.1:{port}/v1", "tiny")


@contextmanager
def gateway(engine: str, model: str, folder: Path, sessions: int) -> Iterator[tuple[Target, Process]]:
    """A gateway before an engine, with keys of that many sessions."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    given = ["--engine", engine, "--model", model, "--home", str(folder), "--port", str(port)]
    with server(python("-m", "sandboxes.gateway", *given), f"{url}/health", log=folder / "gateway.log") as process:
        operator = (folder / "keys" / "operator").read_text().strip()
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {operator}"}, trust_env=False) as client:
            keys = tuple(_session(client, n) for n in range(sessions))
        yield Target(f"{url}/v1", model, keys), process


def _session(client: httpx.Client, number: int) -> str:
    answer = client.post("/rl/start_session", json={"task_id": f"bench-{number}"})
    answer.raise_for_status()
    return str(answer.json()["api_key"])


@contextmanager
def litellm(upstream: Target, folder: Path) -> Iterator[tuple[Target, Process]]:
    """LiteLLM's proxy with one worker, before the same upstream."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    known = {"model": f"openai/{upstream.model}", "api_base": upstream.url, "api_key": "none"}
    config = folder / "litellm.json"  # YAML reads JSON
    config.write_bytes(orjson.dumps({"model_list": [{"model_name": upstream.model, "litellm_params": known}]}))
    binary = peers.environment("litellm", LITELLM).with_name("litellm")
    command = [str(binary), "--config", str(config), "--host", "127.0.0.1", "--port", str(port), "--telemetry", "False"]
    env = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
    with server(command, f"{url}/health/liveliness", log=folder / "litellm.log", env=env) as process:
        yield Target(f"{url}/v1", upstream.model), process


if __name__ == "__main__":
    main()
