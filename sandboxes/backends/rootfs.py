"""Make a root file system: Debian packages unpacked into a folder, Python packages installed there without a network.

Only `images` calls this, once per recipe, and never while an episode waits.
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandboxes.backends.base import BackendUnavailable

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
LEAVE_OUT = ("doc", "man", "info", "locale", "zoneinfo")  # below /usr/share
REPOSITORY = "lakeloop-root"
DEBIAN_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]+(=[A-Za-z0-9.+:~-]+)?")
PYTHON_PIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9,._-]+\])?==[A-Za-z0-9.!+_-]+")
# Wheels for the box's Python and its glibc 2.36, whatever this machine has.
WHEELS = [
    *("--only-binary=:all:", "--python-version=3.11", "--implementation=cp"),
    *(f"--abi={abi}" for abi in ("cp311", "abi3", "none")),
    *(f"--platform=manylinux_2_{minor}_x86_64" for minor in range(36, 4, -1)),
    *(f"--platform={name}_x86_64" for name in ("manylinux2014", "manylinux2010", "manylinux1", "linux")),
]


class RecipeError(ValueError):
    """A recipe that cannot be followed. The text says what to write instead."""


@dataclass(frozen=True)
class Recipe:
    """What an image has beside the standard packages. Equal recipes are one image; RecipeError where a name is none.

    `python` names exact versions, so that a recipe means the same wherever it is built.
    """

    debian: tuple[str, ...] = ()
    python: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for text in self.debian:
            if not DEBIAN_NAME.fullmatch(text):
                raise RecipeError(f"{text!r} is not a Debian package: write NAME or NAME=VERSION")
        for text in self.python:
            if not PYTHON_PIN.fullmatch(text):
                raise RecipeError(f"{text!r} does not pin a Python package: write NAME==VERSION")
        object.__setattr__(self, "debian", tuple(sorted(set(self.debian) - set(PACKAGES))))
        object.__setattr__(self, "python", tuple(sorted(set(self.python))))

    @property
    def digest(self) -> str:
        extra = [*(f"debian {name}" for name in self.debian), *(f"python {pin}" for pin in self.python)]
        return hashlib.sha256("\n".join((SUITE, *PACKAGES, str(RECIPE), *extra)).encode()).hexdigest()[:16]

    @property
    def name(self) -> str:
        """How a `BoxSpec` names this image, for every backend."""
        return f"{REPOSITORY}:{self.digest}"


def make(path: Path, recipe: Recipe, progress: Callable[[str], None]) -> None:
    """Make the folder as root, all or nothing. BackendUnavailable where a tool or a package is missing."""
    if shutil.which("mmdebstrap") is None:
        raise BackendUnavailable("the boxes' root file system is made by mmdebstrap: apt-get install mmdebstrap")
    packages = [*PACKAGES, *recipe.debian]
    progress(f"making the boxes' root file system of {len(packages)} Debian packages (once, about half a minute)")
    part = Path(tempfile.mkdtemp(prefix="part-", dir=path.parent))
    try:
        _debian(part, packages)
        _finish(part)
        if recipe.python:
            progress(f"installing {', '.join(recipe.python)} into it")
            _python(part, recipe.python)
        part.chmod(0o755)
        part.rename(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    progress(f"root file system ready: {path}")


def _debian(root: Path, packages: Sequence[str]) -> None:
    sources = _apt_sources()
    _run(
        [
            *("mmdebstrap", "--variant=extract", "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr"),
            *(f"--aptopt={option}" for option in _apt_network_options()),
            *(f"--include={','.join(packages)}", SUITE, str(root), *(["-"] if sources else [])),
        ],
        sources,
    )


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
    _inside(root, "/usr/bin/python3", "-m", "compileall", "-q", "-x", unused, *libraries)


def _python(root: Path, pins: Sequence[str]) -> None:
    """Wheels come from the package index to this machine; what installs them is the box's own Python, without a network."""
    wheels = root / "wheels"
    download = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--dest",
        str(wheels),
    ]
    _run([*download, *WHEELS, *pins])
    _run([*download, "--no-deps", "--only-binary=:all:", "pip"])
    installer = f"/wheels/{next(wheels.glob('pip-*.whl')).name}/pip"
    _inside(
        root, "/usr/bin/python3", installer, "install", "--quiet", "--no-index", "--find-links=/wheels",
        "--root-user-action=ignore", "--break-system-packages", "--no-cache-dir", "--disable-pip-version-check", *pins,
    )  # fmt: skip
    shutil.rmtree(wheels)


def _inside(root: Path, *command: str) -> None:
    """Run with the folder as `/` and no network."""
    _run(
        ["unshare", "--net", "chroot", str(root), *command],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"},
    )


def installed(root: Path) -> dict[str, str]:
    """Python packages added to an image: name -> version."""
    found = (root / "usr/local/lib/python3.11/dist-packages").glob("*.dist-info")
    return dict(sorted((name, version) for name, _, version in (path.stem.partition("-") for path in found)))


def describe(root: Path, recipe: Recipe) -> str:
    """The image's own note beside its folder, as JSON."""
    return json.dumps({"debian": recipe.debian, "python": recipe.python, "installed": installed(root)})


def _run(command: list[str], stdin: bytes = b"", env: dict[str, str] | None = None) -> bytes:
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=BUILD_TIMEOUT_S, check=False, env=env)
    except subprocess.TimeoutExpired as error:
        raise BackendUnavailable(f"{command[0]} did not end within {BUILD_TIMEOUT_S} s") from error
    if done.returncode != 0:
        tail = done.stderr.decode(errors="replace").strip().splitlines()[-5:]
        raise BackendUnavailable(f"{' '.join(command[:2])} failed with status {done.returncode}: {' | '.join(tail)}")
    return done.stdout
