"""The gateway against the engine called directly, and against LiteLLM's proxy: `lakeloop bench gateway`.

Every ratio is of runs that took turns on this machine. On the real engine: `throughput_ratio`, tokens per second at
saturation through the gateway over the engine's own chat completions, with SmolLM2; `added_ms.N` and `added_ttft_ms.N`,
latency through the gateway less the engine's own at N sessions at a time, with `tiny`, whose own time varies least.
What an engine's noise would hide is measured before a replay engine that answers at once, in conversations of four
calls: calls per second and core (processor time of the proxy's own processes), LiteLLM's on the same upstream, memory
over a long run, and what the journal costs. LiteLLM records nothing.
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
from benchmarks.load import Load, Talk, Target, drive, paired
from benchmarks.processes import Process, free_port, python, server
from benchmarks.report import arguments, middle, percentile, say, tell
from lakehouse.home import home
from tasks.serving import launch
from tasks.serving.models import resolve
from tasks.stack.settings import Settings

SESSIONS = (1, 16, 64)
LITELLM = ("litellm[proxy]==1.83.0",)
TOKENS = 64
TURNS = 4


def main() -> None:
    given = arguments(__doc__)
    with tempfile.TemporaryDirectory(prefix="lakeloop-bench-") as folder:
        rooms = [Path(folder) / name for name in ("replay", "engine")]
        for room in rooms:
            room.mkdir()
        before_replay = asyncio.run(replayed(rooms[0], quick=given.quick))
        say(f"before the replay engine: {before_replay}")
        on_engine = asyncio.run(engine(rooms[1], quick=given.quick))
    tell({**on_engine, **before_replay})


async def engine(folder: Path, *, quick: bool) -> dict[str, Any]:
    """Through the gateway against the engine's own chat completions, in turns on one real engine."""
    return {**await _latency(folder, quick=quick), **await _saturation(folder, quick=quick)}


async def _latency(folder: Path, *, quick: bool) -> dict[str, Any]:
    calls, rounds = (32, 1) if quick else (128, 4)
    added: dict[str, dict[str, float]] = {}
    first: dict[str, float] = {}
    with ExitStack() as stack:
        targets = _both(stack, folder / "tiny", "tiny")
        for target in targets.values():
            await drive(target, Talk(TOKENS), clients=4, calls=8, tag="warm-up")
        for sessions in SESSIONS:
            say(f"engine: {sessions} sessions at a time")
            size = max(8, calls // 4) if sessions == 1 else calls
            for stream in (False, True):
                talk = Talk(TOKENS, stream=stream)
                runs = {n: partial(drive, t, talk, clients=sessions, calls=size) for n, t in targets.items()}
                found = await paired(runs, rounds)
                if stream:
                    first[str(sessions)] = _added(found, 0.5, "first_ms")
                else:
                    added[str(sessions)] = {"p50": _added(found, 0.5), "p99": _added(found, 0.99)}
    return {"added_ms": added, "added_ttft_ms": first}


async def _saturation(folder: Path, *, quick: bool) -> dict[str, Any]:
    rounds = 1 if quick else 4
    with ExitStack() as stack:
        targets = _both(stack, folder / "smollm2", "smollm2")
        size, calls = (8, 64) if quick else (32, 192)
        for target in targets.values():
            await drive(target, Talk(8), clients=4, calls=4, tag="warm-up")
        say(f"engine: saturation with {targets['direct'].model}")
        talks = {"through": Talk(size), "direct": Talk(size), "recording": Talk(size, record=True)}
        targets["recording"] = targets["direct"]
        runs = {n: partial(drive, targets[n], talk, clients=64, calls=calls) for n, talk in talks.items()}
        found = await paired(runs, rounds)
    ratios = {name: _rates_over(found["through"], found[name]) for name in ("direct", "recording")}
    return {
        "throughput_ratio": round(middle(ratios["direct"]), 3),
        "throughput_ratio_recording": round(middle(ratios["recording"]), 3),
        "throughput_ratios": {name: [round(one, 3) for one in each] for name, each in ratios.items()},
        "engine_tokens_per_s": round(middle([one.tokens_per_s for one in found["direct"]]), 1),
    }


def _rates_over(ours: list[Load], theirs: list[Load]) -> list[float]:
    return [a.tokens_per_s / b.tokens_per_s for a, b in zip(ours, theirs, strict=True)]


def _both(stack: ExitStack, folder: Path, model: str) -> dict[str, Target]:
    """An engine, and a gateway before it."""
    folder.mkdir()
    direct = stack.enter_context(real_engine(folder, model))
    through, _ = stack.enter_context(gateway(direct.url.removesuffix("/v1"), direct.model, folder))
    return {"through": through, "direct": direct}


async def replayed(folder: Path, *, quick: bool) -> dict[str, Any]:
    """The gateway and LiteLLM's proxy before an engine that answers at once."""
    calls, rounds = (200, 1) if quick else (1000, 5)
    port = free_port()
    direct = Target(f"http://127.0.0.1:{port}/v1", "replay")
    talk = Talk(TOKENS, turns=TURNS)
    with ExitStack() as stack:
        command = python("-m", "benchmarks.replay", str(port), str(TOKENS))
        stack.enter_context(server(command, f"http://127.0.0.1:{port}/health", log=folder / "replay.log"))
        ours, own = stack.enter_context(gateway(f"http://127.0.0.1:{port}", "replay", folder))
        peer, theirs = stack.enter_context(litellm(direct, folder))
        targets = {"direct": direct, "ours": ours, "litellm": peer}
        for target in targets.values():
            await drive(target, talk, clients=8, calls=100, tag="warm-up")
        say("replay: one call at a time")
        alone = await paired(
            {n: partial(drive, t, talk, clients=1, calls=calls // 5) for n, t in targets.items()}, rounds
        )
        say("replay: sixteen at a time")
        rates = await _rates({"ours": (ours, own), "litellm": (peer, theirs)}, talk, calls, rounds)
        growth, bytes_per_call = await _long_run(ours, own, talk, folder, 2000 if quick else 10_000)
    added = {name: _p50(alone[name]) - _p50(alone["direct"]) for name in ("ours", "litellm")}
    rate = {name: middle(found) for name, found in rates.items()}
    ratios = [a / b for a, b in zip(rates["ours"], rates["litellm"], strict=True)]
    return {
        "replay_added_ms": round(added["ours"], 2),
        "litellm_added_ms": round(added["litellm"], 2),
        "litellm_added_ratio": round(added["litellm"] / added["ours"], 1),
        "calls_per_s_per_core": round(rate["ours"], 1),
        "litellm_calls_per_s_per_core": round(rate["litellm"], 1),
        "litellm_rate_ratio": round(middle(ratios), 1),
        "rss_growth_mib": round(growth, 1),
        "journal_bytes_per_call": round(bytes_per_call),
    }


async def _rates(
    proxies: dict[str, tuple[Target, Process]], talk: Talk, calls: int, rounds: int
) -> dict[str, list[float]]:
    """Calls per second that one core could carry, calls over the processor time they took, in turns."""
    found: dict[str, list[float]] = {name: [] for name in proxies}
    for turn in range(rounds):
        for name in proxies if turn % 2 == 0 else reversed(list(proxies)):
            target, process = proxies[name]
            before = process.cpu_s
            load = await drive(target, talk, clients=16, calls=calls)
            found[name].append(len(load.latency_ms) / (process.cpu_s - before))
    return found


async def _long_run(target: Target, process: Process, talk: Talk, folder: Path, calls: int) -> tuple[float, float]:
    """Growth of memory in MiB per 10,000 calls once the first quarter is over, and journal bytes per call."""
    say(f"replay: {calls} calls")
    await drive(target, talk, clients=16, calls=calls // 4)
    rss, size = process.rss_mib, _journal_bytes(folder)
    await drive(target, talk, clients=16, calls=calls)
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
def real_engine(folder: Path, model: str) -> Iterator[Target]:
    """vLLM with a model; or the engine at LAKELOOP_ENGINE_URL, which serves LAKELOOP_MODEL."""
    url = os.environ.get("LAKELOOP_ENGINE_URL")
    if url:
        yield Target(f"{url.rstrip('/')}/v1", os.environ.get("LAKELOOP_MODEL", "tiny"))
        return
    port = free_port()
    found = launch.engine(
        resolve(model, home()), name=model, port=port, python=Settings().engine_python, max_model_len=1024
    )
    say(f"starting the engine with {model}")
    with server(
        found.command,
        f"http://127.0.0.1:{port}/health",
        log=folder / "engine.log",
        deadline_s=Settings().engine_deadline_s,
        env=found.environment,
    ):
        # The gateway records under which version a token was drawn, so it opens no session on weights without a label.
        httpx.post(f"http://127.0.0.1:{port}/update_weight_version", json={"new_version": "1"}).raise_for_status()
        yield Target(f"http://127.0.0.1:{port}/v1", model)


@contextmanager
def gateway(engine: str, model: str, folder: Path) -> Iterator[tuple[Target, Process]]:
    """A gateway before an engine."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    given = ["--engine", engine, "--model", model, "--home", str(folder), "--port", str(port)]
    with server(python("-m", "sandboxes.gateway", *given), f"{url}/health", log=folder / "gateway.log") as process:
        yield Target(f"{url}/v1", model, (folder / "keys" / "operator").read_text().strip()), process


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
