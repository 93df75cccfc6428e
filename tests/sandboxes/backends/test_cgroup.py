"""Control groups: what is written for a box, what is removed after it."""

import asyncio
import secrets
import subprocess
import time
from pathlib import Path

import pytest

from sandboxes.backends import cgroup
from sandboxes.backends.base import BackendUnavailable, Limits

LIMITS = Limits(memory_mb=64, cpus=0.5, pids=10, lease_s=100)


@pytest.fixture
def unified(tmp_path) -> Path:
    """A folder with the files of a version 2 hierarchy, as the kernel would make them."""
    for folder in (tmp_path, tmp_path / cgroup.PARENT):
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.controllers").write_text("cpu io memory pids")
        (folder / "cgroup.subtree_control").write_text("")
    return tmp_path


@pytest.fixture
def own_parents():
    """Real parents of this test's own, so that nobody else's boxes are reaped."""
    try:
        parents = [folder / f"test-{secrets.token_hex(4)}" for folder in cgroup.parents()]
    except BackendUnavailable as reason:
        pytest.skip(str(reason))
    for parent in parents:
        parent.mkdir()
    yield parents
    for parent in parents:
        parent.rmdir()


def test_version_2_is_delegated_once(unified):
    assert cgroup.parents(unified) == [unified / "lakeloop"]
    assert (unified / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"
    assert (unified / "lakeloop/cgroup.subtree_control").read_text() == "+memory +pids +cpu"


def test_version_2_limits_are_written(unified, monkeypatch):
    make = Path.mkdir

    def mkdir(self, *args, **kwargs):
        make(self, *args, **kwargs)
        for name in ("memory.max", "memory.swap.max", "pids.max", "cpu.max"):
            (self / name).write_text("max")

    monkeypatch.setattr(Path, "mkdir", mkdir)
    [folder] = cgroup.create([unified / "lakeloop"], LIMITS).folders
    assert {file.name: file.read_text() for file in folder.iterdir()} == {
        "memory.max": str(64 << 20),
        "memory.swap.max": "0",
        "pids.max": "14",
        "cpu.max": "50000 100000",
    }


def test_where_no_group_can_be_had_the_error_names_the_way_out(tmp_path):
    with pytest.raises(BackendUnavailable, match="LAKELOOP_ALLOW_NO_CGROUP=1"):
        cgroup.parents(tmp_path / "nothing")


@pytest.mark.bubblewrap
def test_reaping_kills_boxes_past_their_lease_and_no_others(own_parents):
    late, early = (cgroup.create(own_parents, Limits(lease_s=lease)) for lease in (-5, 500))
    processes = []
    for group in (late, early):
        process = subprocess.Popen(["sleep", "300"])
        for procs in group.procs:
            Path(procs).write_text(str(process.pid))
        processes.append(process)
    try:
        assert cgroup.reap(own_parents, time.time()) == 1
        assert processes[0].wait(5) == -9
        assert processes[1].poll() is None
        assert not any(folder.exists() for folder in late.folders)
        assert all(folder.exists() for folder in early.folders)
    finally:
        for process in processes:
            process.kill()
            process.wait()
        asyncio.run(early.remove())
