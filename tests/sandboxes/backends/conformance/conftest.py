"""The release gate: one suite, run against every backend. `shared` is one box for all attacks of a file.

That attacks may share a box is itself promised: nothing of a command is left when the next one runs.
"""

import pytest
import pytest_asyncio

from sandboxes.backends.base import BoxSpec


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def _one_box(backend):
    box = await backend.start(BoxSpec(files={"pkg/core.py": b"ONE = 1\n"}))
    yield box
    await box.close()


@pytest_asyncio.fixture(loop_scope="module")
async def shared(_one_box):
    """The box of this file, which answers before and after whatever is done in it."""
    yield _one_box
    left = await _one_box.exec(["sh", "-c", "ps -e -o comm= > /tmp/left; cat /tmp/left"], timeout_s=20)
    assert left.stdout.split() == [b"python3", b"sh", b"ps"], left  # the runner and this very look


@pytest.fixture
def attack():
    """Runs a Python program in a box and gives back the lines it printed: by custom, what it could do."""

    async def run(box, program: str, *arguments: str, timeout_s: float = 20.0, stdin: bytes = b"") -> list[str]:
        result = await box.exec(["python3", "-c", program, *arguments], timeout_s=timeout_s, stdin=stdin)
        assert result.exit_code == 0, result
        return result.stdout.decode().splitlines()

    return run
