"""The root file system of every box: Debian packages unpacked into a folder, once per list of packages."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path

from lakehouse.home import home
from sandboxes.backends.base import BackendUnavailable, RootFilesystem

SUITE = "bookworm"
PACKAGES = (
    *("base-files", "bash", "coreutils", "dash", "diffutils", "file", "findutils", "gawk", "grep", "gzip", "hostname"),
    *(
        "less",
        "libc-bin",
        "patch",
        "procps",
        "python3",
        "python3-pytest",
        "ripgrep",
        "sed",
        "tar",
        "tini",
        "util-linux",
    ),
)
RECIPE = 1  # raise when the steps below change what they make
BUILD_TIMEOUT_S = 600
SHARED = Path("/var/cache/lakeloop")
LEAVE_OUT = (
    "/usr/share/doc/*",
    "/usr/share/man/*",
    "/usr/share/info/*",
    "/usr/share/locale/*",
    "/usr/share/zoneinfo/*",
)


def silent(message: str) -> None:
    """The progress callback that says nothing."""


def root_filesystem(progress: Callable[[str], None] = silent) -> RootFilesystem:
    """The root file system, made now if it is not there. BackendUnavailable where it cannot be made."""
    digest = hashlib.sha256("\n".join((SUITE, *PACKAGES, str(RECIPE))).encode()).hexdigest()[:16]
    folder = _folder()
    path = folder / f"root-{digest}"
    if not path.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / f"root-{digest}.lock"):
            if not path.is_dir():
                _make(path, progress)
    return RootFilesystem(path, digest)


def _folder() -> Path:
    """Under the home folder if the boxes' uid can reach it there, else (a home below /root) in the system's cache."""
    wanted = home().cache / "roots"
    if os.geteuid() != 0 or all(parent.stat().st_mode & 1 for parent in wanted.parents if parent.exists()):
        return wanted
    return SHARED


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        flock(lock, LOCK_EX)
        yield


def _make(path: Path, progress: Callable[[str], None]) -> None:
    if shutil.which("mmdebstrap") is None:
        raise BackendUnavailable("the boxes' root file system is made by mmdebstrap: apt-get install mmdebstrap")
    progress(f"making the boxes' root file system from {len(PACKAGES)} Debian packages (once, about half a minute)")
    part = Path(tempfile.mkdtemp(prefix="part-", dir=path.parent))
    try:
        _run(
            [
                *("mmdebstrap", "--variant=extract", "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr"),
                *(f"--dpkgopt=path-exclude={pattern}" for pattern in LEAVE_OUT),
                *(f"--include={','.join(PACKAGES)}", SUITE, str(part)),
            ]
        )
        _finish(part)
        part.chmod(0o755)
        part.rename(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    progress(f"root file system ready: {path}")


def _finish(root: Path) -> None:
    """What the packages' own scripts would have done, and mount points; nothing of the host's network set-up stays."""
    for folder in ("testbed", "home/agent", "proc", "dev", "tmp", "run"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/bash\nagent:x:1000:1000:agent:/home/agent:/bin/bash\n")
    (root / "etc/group").write_text("root:x:0:\nagent:x:1000:\n")
    (root / "etc/hostname").write_text("box\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost box\n")
    (root / "etc/resolv.conf").write_text("")
    (root / "usr/bin/awk").unlink(missing_ok=True)
    (root / "usr/bin/awk").symlink_to("gawk")
    libraries = ["/usr/lib/python3", "/usr/lib/python3.11"]
    _run(
        [
            "chroot",
            str(root),
            "/usr/bin/python3",
            "-m",
            "compileall",
            "-q",
            "-x",
            "/(test|tests|idlelib|lib2to3)/",
            *libraries,
        ]
    )


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, timeout=BUILD_TIMEOUT_S, check=False)
    if done.returncode != 0:
        tail = done.stderr.decode(errors="replace").strip().splitlines()[-5:]
        raise BackendUnavailable(f"{command[0]} failed with status {done.returncode}: {' | '.join(tail)}")
