"""A small JSON file that all processes of a gateway share: looked at before each use, changed by one process at a time."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, Generic, TextIO, TypeVar

from pydantic import TypeAdapter

Shape = TypeVar("Shape")
LOOK_AGAIN_S = 0.002  # what another process wrote is seen this soon; one call asks a dozen times


class SharedFile(Generic[Shape]):
    """One value of a shape; `empty` where there is no file.

    `lasting` is for a process that shares it with nobody: the file is then for the next start only, and written where
    this part of the value changes.
    """

    def __init__(
        self, path: Path, shape: TypeAdapter[Shape], empty: Shape, lasting: Callable[[Shape], Any] | None = None
    ) -> None:
        self._path = path
        self._shape = shape
        self._empty = empty
        self._lasting = lasting
        self._mark: tuple[int, int] | None = None
        self._looked: float | None = None
        self._value = deepcopy(empty)

    def read(self) -> Shape:
        """As it is now, not to be changed. The file is read again only where it is another one."""
        if self._looked is None or (self._lasting is None and time.monotonic() > self._looked + LOOK_AGAIN_S):
            self._refresh()
        return self._value

    @contextmanager
    def change(self) -> Iterator[Shape]:
        """The value, to be changed in place; written when the block ends, left alone where it raises.

        OSError where it cannot be written: then the change holds in this process only, until another one writes.
        """
        with self._alone():
            value = deepcopy(self._value)
            before = self._lasting(value) if self._lasting else None
            yield value
            self._value = value
            if self._lasting is None or self._lasting(value) != before:
                self._write(value)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else changes it, and the value is as the last one left it."""
        if self._lasting is not None:
            self.read()
            yield
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with _private(self._path.with_suffix(".lock")) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # held for one small write
            self._refresh()
            yield

    def _refresh(self) -> None:
        mark = self._look()
        if mark != self._mark:
            self._value = self._shape.validate_json(self._path.read_bytes()) if mark else deepcopy(self._empty)
            self._mark = mark
        self._looked = time.monotonic()

    def _write(self, value: Shape) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_suffix(".draft")  # another inode each time, which is how readers notice
        with _private(draft) as file:
            file.write(self._shape.dump_json(value).decode())
        draft.replace(self._path)
        self._mark = self._look()

    def _look(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns


def _private(path: Path) -> TextIO:
    """A file to write that only its owner may read."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w")
