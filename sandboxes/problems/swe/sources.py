"""Work trees by name and version: source distributions, fetched once through pip and verified, and stored repositories."""

import importlib.util
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from threading import Lock

from lakehouse.home import home
from sandboxes.problems.base import EnvironmentFailure
from sandboxes.problems.swe import repositories
from sandboxes.problems.swe.packages import PACKAGES, Package

FETCH_S = 300.0
_locks: dict[str, Lock] = {}
_locks_guard = Lock()


@lru_cache(maxsize=32)
def pristine(name: str, version: str) -> dict[str, bytes]:
    """A release's work tree as its authors shipped it: path -> content. EnvironmentFailure where it cannot be had."""
    package = PACKAGES.get(name)
    if package is None:
        return repositories.read(name, version)[1]
    if version not in package.sha256:
        raise EnvironmentFailure(f"{name} {version} is not among the known packages: rebuild the problem set")
    return _unpack(archive(package, version), package)


@lru_cache(maxsize=256)
def layout(name: str, version: str) -> Package:
    """Where code and tests lie in it. EnvironmentFailure where it is not known."""
    return PACKAGES.get(name) or repositories.read(name, version)[0]


def prefetch(releases: Iterable[tuple[str, str]]) -> None:
    """Fetch several releases side by side, so that a run does not wait for each at first use."""
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda release: pristine(*release), sorted(set(releases))))


def archive(package: Package, version: str) -> bytes:
    """The source distribution's bytes, from the cache or from the package index."""
    path = home().cache / "sdists" / f"{package.name}-{version}.tar.gz"
    with _locks_guard:
        lock = _locks.setdefault(str(path), Lock())
    with lock:
        if not path.is_file() or _digest(path) != package.sha256[version]:
            _fetch(package, version, path)
    return path.read_bytes()


def _digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def _fetch(package: Package, version: str, path: Path) -> None:
    """pip downloads by digest, so a file that is not the recorded one is refused before any of it runs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    wanted = package.sha256[version]
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        requirements = Path(folder, "requirements.txt")
        requirements.write_text(f"{package.name}=={version} --hash=sha256:{wanted}\n")
        command = [*_pip(), "download", "--quiet", "--require-hashes", "--no-deps", "--no-binary", package.name]
        command += ["--dest", folder, "--requirement", str(requirements)]
        # Metadata is built in an environment of its own; where that cannot be had, in ours.
        errors = [error for extra in ((), ("--no-build-isolation",)) if (error := _try([*command, *extra], folder))]
        found = [file for file in Path(folder).glob("*.tar.gz") if _digest(file) == wanted]
        if not found:
            raise EnvironmentFailure(
                f"the source of {package.name} {version} cannot be fetched: {' | '.join(errors)}. "
                f"With the package index in reach, try again; or put the file at {path}"
            )
        found[0].replace(path)


def _try(command: list[str], folder: str) -> str:
    """Run unless the download is there already; the last line of what went wrong, or nothing."""
    if list(Path(folder).glob("*.tar.gz")):
        return ""
    try:
        done = subprocess.run(command, capture_output=True, timeout=FETCH_S, check=False, cwd=folder)
    except subprocess.TimeoutExpired:
        return f"pip did not finish within {FETCH_S:.0f} s"
    lines = [line for line in done.stderr.decode(errors="replace").splitlines() if line.startswith("ERROR")]
    return "" if done.returncode == 0 else (lines or ["pip failed"])[-1]


def _pip() -> list[str]:
    """pip of this environment, else the one uv runs in an environment of its own."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    if shutil.which("uv") is not None:
        return ["uv", "tool", "run", "pip"]
    raise EnvironmentFailure("package sources are fetched by pip, and neither pip nor uv is here: install pip")


def _unpack(raw: bytes, package: Package) -> dict[str, bytes]:
    """Regular files of the work tree, without the archive's top folder; nothing is written to disk."""
    tree: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
        for member in tar:
            path = member.name.partition("/")[2]
            handle = tar.extractfile(member) if member.isfile() and package.ships(path) else None
            if handle is not None:
                tree[path] = handle.read()
    return dict(sorted(tree.items()))
