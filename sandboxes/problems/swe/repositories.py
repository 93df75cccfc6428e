"""Repositories that are no release of a known package, kept in the home folder by content.

`<home>/repositories/<name>/<version>.tar.gz` holds a layout and a work tree. A version ends in the archive's digest, so a
problem that names one cannot be given another. Beside it, `<version>.tests.json` says which tests passed in every
validation; the first validation of a version holds.
"""

import gzip
import io
import os
import re
import tarfile
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from lakehouse.home import home
from lakehouse.records import Split
from sandboxes.problems.base import EnvironmentFailure
from sandboxes.problems.swe.packages import Package

LAYOUT = "layout.json"
TREE = "tree/"
LARGEST_TREE = 200 << 20  # bytes; a box's work tree holds 256 MiB
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,200}")
_DIGITS = 16  # of the digest, in a version


class Layout(BaseModel):
    """What `packages.Package` says of a release, for a repository."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    licence: str
    split: Split
    sources: tuple[str, ...]
    tests: tuple[str, ...]
    support: tuple[str, ...] = ()
    paths: tuple[str, ...] = (".",)
    image: str | None = None  # to run in; none: ours

    def package(self, versions: Mapping[str, str]) -> Package:
        """The same as a package with these versions (-> sha256 of the archive); the last one is the one it is at."""
        return Package(**self.model_dump(), version=list(versions)[-1], sha256=dict(versions))


def keep(layout: Layout, label: str, tree: Mapping[str, bytes]) -> tuple[str, str]:
    """Store a work tree; its version, which begins with `label`, and the archive's sha256. ValueError where it is too large."""
    if sum(map(len, tree.values())) > LARGEST_TREE:
        raise ValueError(f"the work tree is larger than {LARGEST_TREE >> 20} MiB: leave out what the tests do not need")
    raw = _pack(layout, tree)
    digest = sha256(raw).hexdigest()
    version = f"{label}-{digest[:_DIGITS]}"
    path = _path(layout.name, version, ".tar.gz")
    if not path.is_file():
        _write(path, raw)
    return version, digest


def stored(name: str, version: str) -> bool:
    """Whether the home folder has this version."""
    return _path(name, version, ".tar.gz").is_file()


def read(name: str, version: str) -> tuple[Package, dict[str, bytes]]:
    """A stored repository. EnvironmentFailure where it is not here or is not what its name says."""
    path = _path(name, version, ".tar.gz")
    if not path.is_file():
        raise EnvironmentFailure(
            f"{name} {version} is no known package and no repository on this machine: "
            f"import or build its problems again, or put the file at {path}"
        )
    raw = path.read_bytes()
    digest = sha256(raw).hexdigest()
    if not version.endswith(f"-{digest[:_DIGITS]}"):
        raise EnvironmentFailure(f"{path} is damaged: remove it and import its problems again")
    try:
        with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
            files = {member.name: _content(tar, member) for member in tar if member.isfile()}
        layout = Layout.model_validate_json(files.pop(LAYOUT))
    except (tarfile.TarError, KeyError, ValidationError) as error:
        raise EnvironmentFailure(f"{path} is no stored repository: {error}") from error
    return layout.package({version: digest}), {path.removeprefix(TREE): content for path, content in files.items()}


class Validated(BaseModel):
    """What the first validation of a version found."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tests: dict[str, list[str]]  # test file -> names of the tests that passed every time
    duration_s: float  # of a grading


def validated(name: str, version: str) -> Validated | None:
    """What is known of a version's tests; None where it was never validated here."""
    path = _path(name, version, ".tests.json")
    return Validated.model_validate_json(path.read_bytes()) if path.is_file() else None


def remember(name: str, version: str, found: Validated) -> Validated:
    """Write down what a validation found, unless an earlier one did; what holds now."""
    known = validated(name, version)
    if known is None:
        _write(_path(name, version, ".tests.json"), found.model_dump_json().encode())
    return known or found


def _path(name: str, version: str, suffix: str) -> Path:
    """Where something is kept. Names come out of problems, so they are checked."""
    for part in (name, version):
        if not _NAME.fullmatch(part):
            raise EnvironmentFailure(f"{part!r} is no name of a repository or a version")
    return home().root / "repositories" / name / (version + suffix)


def _pack(layout: Layout, tree: Mapping[str, bytes]) -> bytes:
    """Equal layouts and trees give equal bytes."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        entries = {LAYOUT: layout.model_dump_json().encode()} | {TREE + path: tree[path] for path in sorted(tree)}
        for path, content in entries.items():
            member = tarfile.TarInfo(path)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return gzip.compress(packed.getvalue(), mtime=0)


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    handle = tar.extractfile(member)
    assert handle is not None  # a regular file
    return handle.read()


def _write(path: Path, content: bytes) -> None:
    """In one step, so that nobody reads half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    Path(name).replace(path)
