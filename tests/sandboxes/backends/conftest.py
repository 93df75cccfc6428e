"""A box of either backend."""

from collections.abc import AsyncIterator

import pytest

from sandboxes.backends.base import BoxSpec
from sandboxes.backends.client import RunnerBox
from sandboxes.backends.docker import connect


@pytest.fixture
async def box(backend) -> AsyncIterator[RunnerBox]:
    started = await backend.start(BoxSpec(files={"pkg/__init__.py": b"", "pkg/core.py": b"ONE = 1\n"}))
    yield started
    await started.close()


@pytest.fixture
def client(docker_engine):
    return connect()
