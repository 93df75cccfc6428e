"""Both backends, prepared once for the run; a Docker engine is started where none answers, and ended after it."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxes.backends import prepare
from sandboxes.backends.base import BackendUnavailable
from sandboxes.backends.docker import connect

SCRIPT = Path(__file__).resolve().parents[2] / "deploy" / "docker-engine.sh"


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[None]:
    try:
        connect().close()
    except BackendUnavailable as nothing:
        if shutil.which("dockerd") is None:
            pytest.skip(str(nothing))
    else:
        yield
        return
    folder = tempfile.mkdtemp(prefix="engine-")
    started = subprocess.run([SCRIPT, "start", folder], capture_output=True, text=True, timeout=90)
    if started.returncode != 0:
        pytest.skip(started.stderr.strip())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", started.stdout.strip().splitlines()[-1].removeprefix("DOCKER_HOST="))
        yield
    subprocess.run([SCRIPT, "stop", folder], check=True, timeout=60)
    shutil.rmtree(folder)


@pytest.fixture(
    scope="session",
    params=[
        pytest.param("docker", marks=pytest.mark.docker),
        pytest.param("bubblewrap", marks=pytest.mark.bubblewrap),
    ],
)
def backend(request):
    if request.param == "docker":
        request.getfixturevalue("docker_engine")
    try:
        return prepare(request.param)
    except BackendUnavailable as reason:
        pytest.skip(str(reason))
