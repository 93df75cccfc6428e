"""What the stack consists of: for each service how to start it and how to tell that it is up."""

import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from sandboxes.backends.runner.common import AGENT
from tasks.serving import launch, models
from tasks.serving.engine import BASE_VERSION, Engine
from tasks.serving.errors import EngineError
from tasks.serving.gate import Gate
from tasks.serving.launch import Launch
from tasks.stack import automations, deployments, limits, probes
from tasks.stack.probes import Look
from tasks.stack.settings import HOST, POOL, Settings


@dataclass(frozen=True)
class Service:
    """One process of the stack."""

    name: str
    expected: str  # for people: what should answer
    start: Callable[[], Launch] | None  # prepares and says what to run; None: it runs elsewhere and can only be adopted
    probe: Callable[[float], Look]  # given when its process started, seconds since the epoch
    url: str | None = None  # None: nothing listens, so it can not be adopted
    setting: str = ""  # the variable that moves it elsewhere
    deadline_s: float = 120.0
    needs: tuple[str, ...] = ()
    settle: Callable[[], None] | None = None  # called once it answers
    once: bool = False  # not begun when the probe says it is up; begun, it is up when it has ended with exit status 0


def plan(settings: Settings) -> list[Service]:
    """Every service, in the order in which they are best started: what takes longest comes first."""
    return [
        _engine(settings),
        _prefect(settings),
        _mlflow(settings),
        _gateway(settings),
        _deployments(settings),
        _worker(settings),
        _watcher(settings),
    ]


def _engine(settings: Settings) -> Service:
    def start() -> Launch:
        return launch.engine(
            models.resolve(settings.model, settings.home),
            name=settings.model_name,
            port=settings.engine_port,
            python=settings.engine_python,
            max_model_len=settings.max_model_len,
        )

    return Service(
        name="engine",
        expected=f"a vLLM engine serving {settings.model_name}",
        start=None if settings.engine_url else start,
        probe=lambda _: probes.engine(settings.engine, settings.model_name),
        url=settings.engine,
        setting="LAKELOOP_ENGINE_URL" if settings.engine_url else "LAKELOOP_ENGINE_PORT",
        deadline_s=settings.engine_deadline_s,
        settle=lambda: _label(settings),
    )


def _prefect(settings: Settings) -> Service:
    def start() -> Launch:
        (settings.home.root / "prefect").mkdir(parents=True, exist_ok=True)
        return Launch(
            _python("prefect", "server", "start", "--host", HOST, "--port", str(settings.prefect_port)),
            {
                **settings.environment(),
                "PREFECT_SERVER_DATABASE_CONNECTION_URL": settings.prefect_database_url,
                "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
                # Leases in memory would be forgotten by a server that is started again, and what they hold never given back.
                "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
                "PREFECT_SERVER_SERVICES_REPOSSESSOR_LOOP_SECONDS": "5",
            },
        )

    def settle() -> None:
        limits.create(settings.prefect_url)
        automations.create(settings.prefect_url, settings.notify)

    return Service(
        name="prefect",
        expected="a Prefect server",
        start=start,
        probe=lambda _: probes.prefect(settings.prefect_url, str(settings.home.root)),
        url=settings.prefect_url,
        setting="LAKELOOP_PREFECT_PORT",
        settle=settle,
    )


def _mlflow(settings: Settings) -> Service:
    def start() -> Launch:
        artifacts = settings.home.artifacts
        artifacts.mkdir(parents=True, exist_ok=True)
        command = _python("mlflow", "server", "--host", HOST, "--port", str(settings.mlflow_port))
        command += ["--artifacts-destination", str(artifacts)]
        command += ["--workers", "1"]  # the default of four costs 280 MB and three seconds of a core each
        return Launch(
            command,
            {
                **settings.environment(),
                "MLFLOW_BACKEND_STORE_URI": settings.mlflow_database_url,  # not on the command line: may hold a password
                # Job execution is for MLflow's own LLM judges; it would start another process per kind of job.
                "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            },
        )

    return Service(
        name="mlflow",
        expected="an MLflow server",
        start=start,
        probe=lambda _: probes.mlflow(settings.mlflow_url),
        url=settings.mlflow_url,
        setting="LAKELOOP_MLFLOW_PORT",
    )


def _gateway(settings: Settings) -> Service:
    def start() -> Launch:
        command = _python("sandboxes.gateway", "--port", str(settings.gateway_port), "--engine", settings.engine)
        command += ["--home", str(settings.home.root), "--model", settings.model_name]
        for entry in _upstream(settings.engine_url) if settings.engine_url else []:
            command += ["--allow-upstream", entry]
        if settings.door:
            command += ["--socket", str(settings.door)]
            command += ["--socket-group", str(AGENT)] if os.geteuid() == 0 else []
        return Launch(command, settings.environment())

    def settle() -> None:
        with suppress(EngineError):  # the engine is not up yet: then it is labelled when it is
            _label(settings)

    return Service(
        name="gateway",
        expected="this home's gateway",
        start=start,
        probe=lambda _: probes.gateway(
            settings.gateway_url,
            _operator_key(settings),
            engine_url=settings.engine,
            model_name=settings.model_name,
        ),
        url=settings.gateway_url,
        setting="LAKELOOP_GATEWAY_PORT",
        settle=settle,
    )


def _deployments(settings: Settings) -> Service:
    def start() -> Launch:
        deployments.create_pool(settings.prefect_url)
        deployments.keep_switches(settings.prefect_url)
        return Launch(_python("prefect", "--no-prompt", "deploy", "--all"), settings.environment())

    def settle() -> None:
        deployments.restore_switches(settings.prefect_url)
        deployments.note(settings.prefect_url, settings.home)

    return Service(
        name="deployments",
        expected="the deployments of prefect.yaml",
        deadline_s=300.0,  # each is a dozen requests: seconds, and minutes on a machine that is busy
        start=start,
        probe=lambda _: deployments.registered(settings.prefect_url),
        needs=("prefect",),
        settle=settle,
        once=True,
    )


def _worker(settings: Settings) -> Service:
    name = "lakeloop"

    def start() -> Launch:
        deployments.create_pool(settings.prefect_url)
        command = _python("prefect", "worker", "start", "--pool", POOL, "--type", "process", "--name", name)
        # It asks for work every 10 s by default; a run started from the UI should start at once.
        return Launch(command, {**settings.environment(), "PREFECT_WORKER_QUERY_SECONDS": "2"})

    return Service(
        name="worker",
        expected=f"a Prefect worker of pool {POOL}",
        start=start,
        probe=lambda since: probes.worker(settings.prefect_url, POOL, name, since),
        needs=("prefect",),
    )


def _watcher(settings: Settings) -> Service:
    def start() -> Launch:
        command = _python("tasks.registry.watch", "--mlflow", settings.mlflow_url, "--engine", settings.engine)
        command += ["--prefect", settings.prefect_url, "--model", settings.model_name]
        command += ["--gateway", settings.gateway_url, "--operator-key", str(settings.operator_key)]
        return Launch(command, settings.environment())

    return Service(
        name="watcher",
        expected="the promotion watcher",
        start=start,
        probe=lambda _: probes.READY,
        needs=("engine", "mlflow", "deployments"),
    )


def _label(settings: Settings) -> None:
    """Give weights that nobody labelled the version number 0: calls are recorded under numbers only.

    They are those the engine was started with, so a gateway that saw the engine before may believe them. Whichever of the two
    is up last finds the other.
    """
    with Engine(settings.engine) as engine, Gate(settings.gateway_url, settings.operator_key) as gate:
        if engine.served_version() == BASE_VERSION:
            engine.label(BASE_VERSION)
            gate.proven(settings.engine, BASE_VERSION)


def _upstream(url: str) -> list[str]:
    """The engine's host and the addresses it has now: the gateway refuses a name that moves to a private address."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        found = socket.getaddrinfo(host, parts.port or 80, type=socket.SOCK_STREAM)
    except socket.gaierror:
        return [host]  # the gateway says what is wrong with it
    return list(dict.fromkeys([host, *(str(info[4][0]) for info in found)]))


def _operator_key(settings: Settings) -> str | None:
    try:
        return settings.operator_key.read_text().strip()
    except FileNotFoundError:
        return None


def _python(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", module, *arguments]
