"""Work trees by content, so that an episode can branch from a step: every file once, whoever has it.

A tree is named by the SHA-256 of its listing, one JSON line `[path, SHA-256 of the content, executable]` per file in the order
of paths; a file's content lies under its own SHA-256. Equal trees have equal names on every machine. Files appear whole or not
at all, and are checked against their name when they are read.
"""

import json
import os
import secrets
import time
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_SH, flock
from hashlib import sha256
from pathlib import Path

from lakehouse.home import home
from sandboxes.backends.base import SandboxError

UNUSED_S = 30 * 86_400.0


class Tree(dict[str, bytes]):
    """A work tree as a box's `snapshot` gives it, path -> content, that also knows which files are executable."""

    def __init__(self, content: Mapping[str, bytes], *, executable: frozenset[str] = frozenset()) -> None:
        super().__init__(content)
        self.executable = executable

    @classmethod
    def of(cls, tree: Mapping[str, bytes]) -> "Tree":
        """A copy."""
        return cls(tree, executable=executables(tree))


def executables(tree: Mapping[str, bytes]) -> frozenset[str]:
    """Paths of a tree that are executable; of a plain mapping none."""
    return tree.executable & tree.keys() if isinstance(tree, Tree) else frozenset()


class TreeMissing(SandboxError):
    """A tree that is not in the store: pruned, or of another machine."""


class TreeDamaged(SandboxError):
    """A file of the store that is not what its name says."""


@dataclass(frozen=True)
class Pruned:
    """What was removed."""

    trees: int
    files: int
    bytes: int


class TreeStore:
    """Trees under one folder, by default `<home>/trees`. Any number of processes may use it at once."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or home().trees

    def put(self, tree: Mapping[str, bytes]) -> str:
        """Keep a tree; its digest. What is there already is not written again."""
        executable = executables(tree)
        with self._locked(LOCK_SH):
            lines = []
            for path in sorted(tree):
                digest = sha256(tree[path]).hexdigest()
                self._keep("files", digest, tree[path])
                lines.append(json.dumps([path, digest, path in executable]) + "\n")
            listing = "".join(lines).encode()
            name = sha256(listing).hexdigest()
            self._keep("trees", name, listing)
        return name

    def get(self, digest: str) -> Tree:
        """The tree of this digest. TreeMissing, or TreeDamaged."""
        with self._locked(LOCK_SH):
            entries = self._entries(self._read("trees", digest))
            content = {path: self._read("files", file) for path, file, _ in entries}
        return Tree(content, executable=frozenset(path for path, _, executable in entries if executable))

    def __contains__(self, digest: str) -> bool:
        return self._path("trees", digest).is_file()

    def prune(self, *, keep: Collection[str] = (), drop: Collection[str] = (), unused_s: float = UNUSED_S) -> Pruned:
        """Remove the trees in `drop`, and those that nobody has put for so long and that are not in `keep`; then the files
        no tree has."""
        oldest = time.time() - unused_s
        trees = files = freed = 0
        with self._locked(LOCK_EX):
            used: set[str] = set()
            for path in self._all("trees"):
                if path.name in drop or (path.name not in keep and path.stat().st_mtime <= oldest):
                    freed += path.stat().st_size
                    trees += 1
                    path.unlink()
                else:
                    used |= {file for _, file, _ in self._entries(self._read("trees", path.name))}
            for path in self._all("files"):
                if path.name not in used:
                    freed += path.stat().st_size
                    files += 1
                    path.unlink()
            for path in self._folder.glob(
                "*/.part-*"
            ):  # of a process that was killed: we hold the lock, so it is nobody's
                path.unlink()
        return Pruned(trees, files, freed)

    def _keep(self, kind: str, digest: str, content: bytes) -> None:
        path = self._path(kind, digest)
        try:
            os.utime(path)  # it is in use: pruning counts from now
            return
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
        part = self._folder / kind / f".part-{secrets.token_hex(8)}"
        part.write_bytes(zlib.compress(content, 1))
        part.replace(path)

    def _read(self, kind: str, digest: str) -> bytes:
        try:
            content = zlib.decompress(self._path(kind, digest).read_bytes())
        except FileNotFoundError as error:
            raise TreeMissing(
                f"{self._folder} has no {kind.removesuffix('s')} {digest}: it was pruned or never put"
            ) from error
        except zlib.error as error:
            raise TreeDamaged(f"{self._path(kind, digest)} cannot be read: {error}") from error
        if sha256(content).hexdigest() != digest:
            raise TreeDamaged(f"{self._path(kind, digest)} does not hold what its name says")
        return content

    @staticmethod
    def _entries(listing: bytes) -> list[tuple[str, str, bool]]:
        return [tuple(json.loads(line)) for line in listing.decode().splitlines()]

    def _path(self, kind: str, digest: str) -> Path:
        if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
            raise TreeMissing(f"{digest!r} is not a SHA-256 digest")
        return self._folder / kind / digest[:2] / digest

    def _all(self, kind: str) -> Iterator[Path]:
        yield from list((self._folder / kind).glob("??/*"))

    @contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        """Putting and reading go side by side; pruning has the store alone."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "lock").open("w") as lock:
            flock(lock, how)
            yield
