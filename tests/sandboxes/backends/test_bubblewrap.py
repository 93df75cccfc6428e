"""What only the bubblewrap backend does: it insists on a control group."""

import os
import secrets
import subprocess
import sys
import time

import pytest

from sandboxes.backends import cgroup
from sandboxes.backends.base import BackendUnavailable
from sandboxes.backends.bubblewrap import Bubblewrap

pytestmark = pytest.mark.bubblewrap

START = """
import asyncio
from sandboxes.backends.base import BackendUnavailable, BoxSpec
from sandboxes.backends.bubblewrap import Bubblewrap

async def main():
    try:
        box = await Bubblewrap().start(BoxSpec())
    except BackendUnavailable as reason:
        print("refused:", reason)
        return
    print((await box.exec(["echo", "a box"], timeout_s=20)).stdout.decode())
    await box.close()

asyncio.run(main())
"""


def start_without_cgroups(**environment: str) -> str:
    """What a controller says that sees an empty, read-only folder where control groups should be."""
    hide = 'mount -t tmpfs -o ro none /sys/fs/cgroup && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", hide, "sh", sys.executable, "-c", START]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(autouse=True)
def available():
    try:
        Bubblewrap().prepare()
    except BackendUnavailable as reason:
        pytest.skip(str(reason))
    if os.geteuid() != 0:
        pytest.skip("only root can hide the control groups")


def test_without_a_control_group_no_box_starts():
    assert start_without_cgroups().startswith("refused: bubblewrap boxes need a control group")


def test_without_a_control_group_boxes_start_if_the_operator_says_so():
    assert start_without_cgroups(LAKELOOP_ALLOW_NO_CGROUP="1") == "a box"


ENDED = """
import asyncio, sys
from sandboxes.backends.base import BoxSpec, Limits
from sandboxes.backends.bubblewrap import Bubblewrap

async def start(backend):
    box = await backend.start(BoxSpec(limits=Limits(lease_s=float(sys.argv[2]))))
    try:
        await box.exec(["sleep", "60"], timeout_s=60)
    finally:
        await box.close()

async def main(after_s):
    boxes = [asyncio.create_task(start(Bubblewrap())) for _ in range(4)]
    await asyncio.sleep(after_s)
    # The event loop ends with the boxes in it, and cancels whatever they are at.

asyncio.run(main(float(sys.argv[1])))
"""


@pytest.mark.parametrize("after_s", [0.0, 0.02, 0.06, 0.15, 0.5])
def test_a_program_that_ends_at_any_moment_leaves_no_control_group(after_s):
    lease_s = 10e6 + secrets.randbelow(10**8)  # by which we know our own: others may start boxes meanwhile
    command = [sys.executable, "-c", ENDED, str(after_s), str(lease_s)]
    subprocess.run(command, check=True, timeout=60, capture_output=True)
    ends = {str(int(time.time() + lease_s) - passed) for passed in range(60)}
    assert [
        folder for parent in cgroup.parents() for folder in parent.iterdir() if folder.name.split("-")[0] in ends
    ] == []
