"""Fixtures that more than one folder uses. The real engine and the real stack are started once for the whole run."""

import asyncio
import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from lakehouse.home import Home
from lakehouse.privacy import pieces
from sandboxes.backends import cgroup
from sandboxes.backends.base import BackendUnavailable, Limits
from sandboxes.gateway.scripted.tokenizer import tokenizer_json
from tasks.registry.watch import Watch
from tasks.serving import launch, models
from tasks.serving.engine import BASE_VERSION, Engine
from tasks.stack import Settings, down, processes, up
from tasks.stack.settings import ROOT

ENGINE_DEADLINE_S = 300.0


def pytest_itemcollected(item: pytest.Item) -> None:
    """Two processes share the run: every test of the one engine goes to one of them, every file stays whole."""
    group = "engine" if "engine_url" in item.fixturenames else item.location[0]
    item.add_marker(pytest.mark.xdist_group(group))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With LAKELOOP_TESTS_WHOLE, as in CI, a skipped test has failed: else a backend that does not come up looks like success."""
    report = yield
    skipped = report.skipped and not hasattr(report, "wasxfail")
    if skipped and "LAKELOOP_TESTS_WHOLE" in os.environ and not item.get_closest_marker("optional"):
        report.outcome = "failed"
        report.longrepr = f"this run is to be whole (LAKELOOP_TESTS_WHOLE), and the test was skipped: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def free_ports() -> Callable[[int], list[int]]:
    """Gives that many ports nobody listens on."""

    def find(count: int) -> list[int]:
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
        ports = [one.getsockname()[1] for one in sockets]
        for one in sockets:
            one.close()
        return ports

    return find


@pytest.fixture
def boxes() -> Iterator[tuple[cgroup.Group, cgroup.Group]]:
    """The control groups of two boxes of this machine: one past its lease, one within it."""
    try:
        parents = cgroup.parents()
    except BackendUnavailable as reason:
        pytest.skip(str(reason))
    late, early = (cgroup.create(parents, Limits(lease_s=lease)) for lease in (-5, 500))
    yield late, early
    for group in (late, early):
        asyncio.run(group.remove())


@pytest.fixture
def scripted_tokenizer(tmp_path, monkeypatch) -> None:
    """A home in the test's own folder that knows the scripted engine's tokens, so that its calls can be masked."""
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))
    folder = tmp_path / "scripted"
    folder.mkdir()
    (folder / "tokenizer.json").write_text(tokenizer_json())
    pieces.keep("scripted", folder)


@pytest.fixture(scope="session")
def with_other_tokenizer() -> Callable[[Path, Path], Path]:
    """Copies a model folder, with a tokenizer in which two tokens have each other's ids."""

    def copied(source: Path, target: Path) -> Path:
        shutil.copytree(source, target)
        told = json.loads((target / "tokenizer.json").read_text())
        ids = told["model"]["vocab"]
        first, second = [token for token in ids if len(token) > 4][:2]
        ids[first], ids[second] = ids[second], ids[first]
        (target / "tokenizer.json").write_text(json.dumps(told))
        return target

    return copied


@pytest.fixture(scope="session")
def engine_url(tmp_path_factory, free_ports) -> Iterator[str]:
    """The URL of a real vLLM engine: `LAKELOOP_TEST_ENGINE` if set, else one started here with the shipped tiny weights.

    It is shared: whoever reloads weights or changes the version label puts both back.
    """
    adopted = os.environ.get("LAKELOOP_TEST_ENGINE")
    if adopted:
        _label(adopted)
        yield adopted
        return
    python = Settings().engine_python
    if not python.exists():
        pytest.skip(f"no engine environment at {python}: run `make install-engine`, or set LAKELOOP_TEST_ENGINE")
    home, port = Home(tmp_path_factory.mktemp("engine")), free_ports(1)[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAKELOOP_HOME", str(home.root))
        how = launch.engine(models.TINY, name="tiny", port=port, python=python, max_model_len=2048)
    url = f"http://127.0.0.1:{port}"
    process = processes.start("engine", how.command, home=home, environment=how.environment, cwd=ROOT)
    try:
        with Engine(url) as engine:
            deadline = time.monotonic() + ENGINE_DEADLINE_S
            while not engine.health():
                if process.poll() is not None or time.monotonic() > deadline:
                    pytest.fail(f"the engine did not come up:\n{processes.tail('engine', home, lines=40)}")
                time.sleep(0.25)
        _label(url)
        yield url
    finally:
        processes.stop(["engine"], home)


@pytest.fixture(scope="session")
def stack_place(engine_url, tmp_path_factory, free_ports) -> Iterator[tuple[Path, Settings]]:
    """Home folder and settings of the one stack of this run, around the shared engine. It is started by `stack`."""
    with Engine(engine_url) as engine:
        model = engine.models()[0]
    root = tmp_path_factory.mktemp("home")
    prefect, mlflow, gateway = free_ports(3)
    with pytest.MonkeyPatch.context() as patch:
        _only(patch, {"LAKELOOP_HOME": str(root)})
        settings = Settings(
            model=model, engine_url=engine_url, prefect_port=prefect, mlflow_port=mlflow, gateway_port=gateway
        )
    yield root, settings
    with pytest.MonkeyPatch.context() as patch:
        _only(patch, {"LAKELOOP_HOME": str(root)})
        down(settings)


@pytest.fixture(scope="module")
def stack(stack_place) -> Iterator[Settings]:
    """The real stack, up. While a module uses it the environment points at it; afterwards the engine is as it was."""
    root, settings = stack_place
    with pytest.MonkeyPatch.context() as patch, Engine(settings.engine) as engine:
        _only(patch, {"LAKELOOP_HOME": str(root)})
        _only(patch, settings.environment())
        before = engine.served_version()
        up(settings)
        yield settings
        _demote(settings)
        if engine.served_version() != before:
            engine.reload(engine.folder(), before)
            engine.label(before)


def _label(url: str) -> None:
    """The gateway records under version numbers only."""
    with Engine(url) as engine:
        if engine.served_version() == BASE_VERSION:
            engine.label(BASE_VERSION)


def _only(patch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    """These variables, and no other setting of ours."""
    for name in [name for name in os.environ if name.startswith("LAKELOOP_")]:
        patch.delenv(name)
    for name, value in environment.items():
        patch.setenv(name, value)


def _demote(settings: Settings) -> None:
    """Promote nothing, so that the watcher leaves the engine alone."""
    if processes.running("mlflow", settings.home) is None:
        return  # the module took the stack down
    from tasks.registry.versions import CHAMPION, Registry

    registry = Registry(settings.mlflow_url)
    if registry.promoted(settings.model_name) is None:
        return
    registry.client.delete_registered_model_alias(settings.model_name, CHAMPION)
    watch = Watch(settings.mlflow_url, settings.engine, settings.prefect_url, settings.model_name)
    deadline = time.monotonic() + 60
    while watch.busy():
        assert time.monotonic() < deadline, "a reconcile run did not end"
        time.sleep(0.5)
