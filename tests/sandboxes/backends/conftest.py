"""Both backends, started once for the run."""

from collections.abc import AsyncIterator

import pytest

from sandboxes.backends import prepare
from sandboxes.backends.base import BackendUnavailable, BoxSpec
from sandboxes.backends.client import RunnerBox
from sandboxes.backends.docker import connect


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


@pytest.fixture
async def box(backend) -> AsyncIterator[RunnerBox]:
    started = await backend.start(BoxSpec(files={"pkg/__init__.py": b"", "pkg/core.py": b"ONE = 1\n"}))
    yield started
    await started.close()


@pytest.fixture
def client(docker_engine):
    return connect()
