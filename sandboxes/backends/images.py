"""The root file system of every box: Debian packages unpacked into a folder, once per list of packages.

bubblewrap uses the folder, Docker an image imported from it, so both run the same files.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path

import docker
import docker.errors

from lakehouse.home import home
from sandboxes.backends.base import BackendUnavailable, RootFilesystem

SUITE = "bookworm"  # its python3 is 3.11
PACKAGES = (
    *(
        "base-files",
        "bash",
        "coreutils",
        "dash",
        "debianutils",
        "diffutils",
        "findutils",
        "gawk",
        "grep",
        "gzip",
        "hostname",
    ),
    *("less", "libc-bin", "patch", "procps", "python3", "python3-pytest", "ripgrep", "sed", "tar", "util-linux"),
)
RECIPE = 2  # raise when the steps below change what they make
BUILD_TIMEOUT_S = 600
FOLDER = Path("/var/cache/lakeloop")  # not the home folder: the boxes' uid must be able to enter it
LEAVE_OUT = ("doc", "man", "info", "locale", "zoneinfo")  # below /usr/share
REPOSITORY = "lakeloop-root"


def silent(message: str) -> None:
    """The progress callback that says nothing."""


def root_filesystem(progress: Callable[[str], None] = silent) -> RootFilesystem:
    """The root file system, made now if it is not there. BackendUnavailable where it cannot be made."""
    digest = hashlib.sha256("\n".join((SUITE, *PACKAGES, str(RECIPE))).encode()).hexdigest()[:16]
    path = FOLDER / f"root-{digest}"
    if not path.is_dir():
        if os.geteuid() != 0:
            raise BackendUnavailable(
                f"the boxes' root file system ({path}) is not there and only root can make it: "
                "run `python -m sandboxes.backends` once as root"
            )
        with _locked(FOLDER / f"root-{digest}.lock"):
            if not path.is_dir():
                _make(path, progress)
    return RootFilesystem(path, digest)


def docker_image(client: docker.DockerClient, progress: Callable[[str], None] = silent) -> str:
    """The name of the image made of the root file system, imported now if the engine does not have it."""
    root = root_filesystem(progress)
    name = f"{REPOSITORY}:{root.digest}"
    with _locked(home().cache / f"{name.replace(':', '-')}.lock"):
        try:
            client.images.get(name)
        except docker.errors.ImageNotFound:
            progress(f"importing {name} into the Docker engine")
            _import(client, root)
    return name


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        flock(lock, LOCK_EX)
        yield


def _make(path: Path, progress: Callable[[str], None]) -> None:
    if shutil.which("mmdebstrap") is None:
        raise BackendUnavailable("the boxes' root file system is made by mmdebstrap: apt-get install mmdebstrap")
    progress(f"making the boxes' root file system of {len(PACKAGES)} Debian packages (once, about half a minute)")
    part = Path(tempfile.mkdtemp(prefix="part-", dir=path.parent))
    sources = _apt_sources()
    try:
        _run(
            [
                *("mmdebstrap", "--variant=extract", "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr"),
                *(f"--aptopt={option}" for option in _apt_network_options()),
                *(f"--include={','.join(PACKAGES)}", SUITE, str(part), *(["-"] if sources else [])),
            ],
            sources,
        )
        _finish(part)
        part.rename(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    progress(f"root file system ready: {path}")


def _apt_sources() -> bytes:
    """The machine's own Debian sources for our suite; empty (mmdebstrap's default) where it has none."""
    form = "deb $(REPO_URI) $(RELEASE) $(COMPONENT)"
    lines = _run(["apt-get", "indextargets", "--format", form, "Created-By: Packages", "Origin: Debian"]).splitlines()
    ours = [line for line in lines if line.split()[2].partition(b"-")[0] == SUITE.encode()]
    return b"\n".join(ours) + b"\n" if ours else b""


def _apt_network_options() -> list[str]:
    """Proxies and certificates from the machine's apt configuration."""
    lines = _run(["apt-config", "dump", "--no-empty", "Acquire::http", "Acquire::https"]).decode().splitlines()
    return [line for line in lines if line.strip()]


def _finish(root: Path) -> None:
    """What the packages' own scripts would have done, and mount points. Nothing of the host's network set-up stays."""
    for folder in ("testbed", "home/agent", "proc", "dev", "sys", "tmp", "run"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for file, text in {
        "etc/passwd": "root:x:0:0:root:/:/bin/sh\nagent:x:1000:1000:agent:/home/agent:/bin/bash\n",
        "etc/group": "root:x:0:\nagent:x:1000:\n",
        "etc/hostname": "box\n",
        "etc/hosts": "127.0.0.1 localhost box\n",
        "etc/resolv.conf": "",
        "etc/apt/sources.list": "",
    }.items():
        (root / file).write_text(text)
    for name in LEAVE_OUT:  # mmdebstrap's own way to leave them out takes three times as long
        shutil.rmtree(root / "usr/share" / name, ignore_errors=True)
    for name, target in {"awk": "gawk", "which": "which.debianutils"}.items():
        (root / "usr/bin" / name).unlink(missing_ok=True)
        (root / "usr/bin" / name).symlink_to(target)
    libraries = ["/usr/lib/python3", "/usr/lib/python3.11"]
    unused = "/(test|tests|idlelib|lib2to3|pydoc_data)/"
    _run(["chroot", str(root), "/usr/bin/python3", "-m", "compileall", "-q", "-x", unused, *libraries])
    root.chmod(0o755)


def _import(client: docker.DockerClient, root: RootFilesystem) -> None:
    """Stream the folder into the engine as an image of one layer."""
    command = ["tar", "-C", str(root.path), "--numeric-owner", "-c", "."]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as tar:
        client.api.import_image_from_stream(tar.stdout, repository=REPOSITORY, tag=root.digest)
    if tar.returncode != 0:
        raise BackendUnavailable(f"tar of {root.path} failed with status {tar.returncode}")


def _run(command: list[str], stdin: bytes = b"") -> bytes:
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=BUILD_TIMEOUT_S, check=False)
    if done.returncode != 0:
        tail = done.stderr.decode(errors="replace").strip().splitlines()[-5:]
        raise BackendUnavailable(f"{command[0]} failed with status {done.returncode}: {' | '.join(tail)}")
    return done.stdout
