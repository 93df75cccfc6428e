"""What the stack consists of: for each service its command line, its environment and how to tell that it is up."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from tasks.serving import launch
from tasks.serving.engine import BASE_VERSION, Engine
from tasks.serving.weights import servable
from tasks.stack import probes
from tasks.stack.probes import Look
from tasks.stack.settings import HOST, POOL, Settings


@dataclass(frozen=True)
class Service:
    """One process of the stack. `command` None: it runs elsewhere and can only be adopted."""

    name: str
    expected: str  # for people: what should answer
    command: list[str] | None
    probe: Callable[[float], Look]  # given when its process started, seconds since the epoch
    environment: Mapping[str, str] = field(default_factory=dict)
    url: str | None = None  # None: nothing listens, so it can not be adopted
    setting: str = ""  # the variable that moves it elsewhere
    deadline_s: float = 120.0
    needs: tuple[str, ...] = ()
    prepare: Callable[[], None] | None = None  # called before its process is started
    settle: Callable[[], None] | None = None  # called once it answers
    once: bool = False  # up when it has ended with exit status 0


def plan(settings: Settings, model_folder: Path | None) -> list[Service]:
    """Every service, in the order in which they are best started. `model_folder` None: the engine runs elsewhere."""
    return [
        _engine(settings, model_folder),
        _prefect(settings),
        _mlflow(settings),
        _gateway(settings),
        _deployments(settings),
        _worker(settings),
        _watcher(settings),
    ]


def _engine(settings: Settings, model_folder: Path | None) -> Service:
    start = None
    if model_folder is not None:
        start = launch.engine(
            servable(model_folder, settings.home.cache / "serving" / settings.model_name),
            name=settings.model_name,
            port=settings.engine_port,
            python=settings.engine_python,
            max_model_len=settings.max_model_len,
        )
    return Service(
        name="engine",
        expected=f"a vLLM engine serving {settings.model_name}",
        command=start.command if start else None,
        environment=start.environment if start else {},
        probe=lambda _: probes.engine(settings.engine, settings.model_name),
        url=settings.engine,
        setting="LAKELOOP_ENGINE_URL" if settings.engine_url else "LAKELOOP_ENGINE_PORT",
        deadline_s=settings.engine_deadline_s,
        settle=lambda: _label(settings.engine),
    )


def _prefect(settings: Settings) -> Service:
    return Service(
        name="prefect",
        expected="a Prefect server",
        command=_python("prefect", "server", "start", "--host", HOST, "--port", str(settings.prefect_port)),
        environment=settings.environment()
        | {
            "PREFECT_SERVER_DATABASE_CONNECTION_URL": settings.prefect_database_url,
            "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        },
        probe=lambda _: probes.prefect(settings.prefect_url),
        url=settings.prefect_url,
        setting="LAKELOOP_PREFECT_PORT",
        prepare=_folder(settings.home.root / "prefect"),
    )


def _mlflow(settings: Settings) -> Service:
    folder = settings.home.root / "mlflow"
    stores = ["--backend-store-uri", settings.mlflow_database_url, "--artifacts-destination", str(folder / "artifacts")]
    stores += ["--workers", "1"]  # the default of four costs 280 MB and three seconds of a core each, for a few writers
    return Service(
        name="mlflow",
        expected="an MLflow server",
        command=[*_python("mlflow", "server", "--host", HOST, "--port", str(settings.mlflow_port)), *stores],
        # Job execution is for MLflow's own LLM judges; it would start another process per kind of job.
        environment=settings.environment() | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
        probe=lambda _: probes.mlflow(settings.mlflow_url),
        url=settings.mlflow_url,
        setting="LAKELOOP_MLFLOW_PORT",
        prepare=_folder(folder / "artifacts"),
    )


def _gateway(settings: Settings) -> Service:
    where = ["--port", str(settings.gateway_port), "--engine", settings.engine, "--home", str(settings.home.root)]
    if settings.engine_url:
        where += ["--allow-upstream", urlsplit(settings.engine_url).hostname or ""]
    return Service(
        name="gateway",
        expected="this home's gateway",
        command=[*_python("sandboxes.gateway"), *where, "--model", settings.model_name],
        environment=settings.environment(),
        probe=lambda _: probes.gateway(
            settings.gateway_url,
            _operator_key(settings),
            engine_url=settings.engine,
            model_name=settings.model_name,
        ),
        url=settings.gateway_url,
        setting="LAKELOOP_GATEWAY_PORT",
    )


def _deployments(settings: Settings) -> Service:
    return Service(
        name="deployments",
        expected="the deployments of prefect.yaml",
        command=_python("prefect", "--no-prompt", "deploy", "--all"),
        environment=settings.environment(),
        probe=lambda _: probes.READY,
        needs=("prefect",),
        prepare=lambda: create_pool(settings.prefect_url),
        once=True,
    )


def _worker(settings: Settings) -> Service:
    name = "lakeloop"
    return Service(
        name="worker",
        expected=f"a Prefect worker of pool {POOL}",
        command=_python("prefect", "worker", "start", "--pool", POOL, "--type", "process", "--name", name),
        # Asked every 10 s by default; a run started from the UI should start at once.
        environment=settings.environment() | {"PREFECT_WORKER_QUERY_SECONDS": "2"},
        probe=lambda since: probes.worker(settings.prefect_url, POOL, name, since),
        needs=("prefect",),
        prepare=lambda: create_pool(settings.prefect_url),
    )


def _watcher(settings: Settings) -> Service:
    where = ["--mlflow", settings.mlflow_url, "--engine", settings.engine, "--prefect", settings.prefect_url]
    return Service(
        name="watcher",
        expected="the promotion watcher",
        command=[*_python("tasks.registry.watch"), *where, "--model", settings.model_name],
        environment=settings.environment(),
        probe=lambda _: probes.READY,
        needs=("engine", "mlflow", "deployments"),
    )


def create_pool(prefect_url: str) -> None:
    """Create the process work pool if it is not there. Its job template is filled in by the first worker."""
    body = {"name": POOL, "type": "process", "description": "Flow runs on this machine, as processes."}
    answer = httpx.post(f"{prefect_url}/work_pools/", json=body, timeout=30.0, trust_env=False)
    if answer.status_code != 409:  # 409: it exists
        answer.raise_for_status()


def _label(engine_url: str) -> None:
    """Give weights that nobody labelled the version number 0: calls are recorded under numbers only."""
    with Engine(engine_url) as engine:
        if engine.served_version() == BASE_VERSION:
            engine.label(BASE_VERSION)


def _operator_key(settings: Settings) -> str | None:
    try:
        return (settings.home.keys / "operator").read_text().strip()
    except FileNotFoundError:
        return None


def _folder(path: Path) -> Callable[[], None]:
    return lambda: path.mkdir(parents=True, exist_ok=True)


def _python(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", module, *arguments]
