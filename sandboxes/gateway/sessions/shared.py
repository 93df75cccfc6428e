"""A small JSON file that all processes of a gateway share: looked at before each use, changed by one process at a time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Generic, TextIO, TypeVar

from pydantic import TypeAdapter

Shape = TypeVar("Shape")


class SharedFile(Generic[Shape]):
    """One value of a shape; `empty` where there is no file."""

    def __init__(self, path: Path, shape: TypeAdapter[Shape], empty: Shape) -> None:
        self._path = path
        self._shape = shape
        self._empty = empty
        self._mark: tuple[int, int] | None = None
        self._value = deepcopy(empty)

    def read(self) -> Shape:
        """As it is now, not to be changed. The file is read again only where it is another one."""
        mark = self._look()
        if mark != self._mark:
            self._value = self._shape.validate_json(self._path.read_bytes()) if mark else deepcopy(self._empty)
            self._mark = mark
        return self._value

    @contextmanager
    def change(self) -> Iterator[Shape]:
        """The value, to be changed in place; written when the block ends, left alone where it raises.

        OSError where it cannot be written: then the change holds in this process only, until another one writes.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with _private(self._path.with_suffix(".lock")) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # held for one small write
            value = deepcopy(self.read())
            yield value
            self._value = value
            draft = self._path.with_suffix(".draft")  # another inode each time, which is how readers notice
            with _private(draft) as file:
                file.write(self._shape.dump_json(value).decode())
            draft.replace(self._path)
            self._mark = self._look()

    def forget(self) -> None:
        """Start afresh."""
        self._path.unlink(missing_ok=True)

    def _look(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns


def _private(path: Path) -> TextIO:
    """A file to write that only its owner may read."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w")
