"""Files of the work tree: always with the agent's rights, never through a link.

A background process may change the tree under our hands, so no path is looked at first and used later: each part of it is
opened in the folder before it, without following links, and what was opened is what is asked about and used.
"""

import contextlib
import errno
import json
import os
import stat
from collections.abc import Iterator

from sandboxes.backends.runner.channel import Channel
from sandboxes.backends.runner.common import WORKDIR, Refused, as_agent

MAX_FILES = 50_000
MAX_NAMES = 8 << 20  # bytes of all paths, as JSON says them: they are one line
PIECE = 1 << 20
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
REGULAR = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a FIFO must not make us wait
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def parts_of(path: str) -> list[str]:
    """The parts of a plain path below the work tree."""
    if path.startswith(WORKDIR + "/"):
        path = path[len(WORKDIR) + 1 :]
    parts = path.split("/")
    if not path or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise Refused(f"{path!r} is not a plain path below {WORKDIR}")
    return parts


def opened(name: str, flags: int, folder: int | None = None) -> int:
    """Open without following a link. The owner's rights cannot be used to hide something from us: they are restored."""
    try:
        return os.open(name, flags, 0o644, dir_fd=folder)
    except PermissionError:
        if flags == NEW:
            raise
        os.chmod(name, 0o755 if flags == FOLDER else 0o644, dir_fd=folder)
        return os.open(name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP or (
            error.errno == errno.ENOTDIR and stat.S_ISLNK(os.lstat(name, dir_fd=folder).st_mode)
        ):
            raise Refused(f"{name!r} is a link, and the path goes through a link") from error
        raise


@contextlib.contextmanager
def folder_of(parts: list[str], *, make: bool = False) -> Iterator[int]:
    """The folder that the last of `parts` is in."""
    at = opened(WORKDIR, FOLDER)
    try:
        for part in parts[:-1]:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=at)
            below = opened(part, FOLDER, at)
            os.close(at)
            at = below
        yield at
    finally:
        os.close(at)


@contextlib.contextmanager
def regular(path: str) -> Iterator[int]:
    """A regular file, open for reading."""
    parts = parts_of(path)
    with folder_of(parts) as folder:
        file = opened(parts[-1], REGULAR, folder)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise Refused(f"{path!r} is not a regular file")
        yield file
    finally:
        os.close(file)


def read(channel: Channel, path: str, limit: int) -> None:
    with as_agent(), regular(path) as file:
        size = os.fstat(file).st_size
        if size > limit:
            raise Refused(f"{path!r} has {size} bytes, more than the limit of {limit}")
        content = bytearray()
        while piece := os.read(file, min(PIECE, limit - len(content))):  # nothing is asked for at the limit
            content += piece
    channel.reply({"ok": True}, bytes(content))


def write(channel: Channel, files: list[tuple[str, int, bool]]) -> None:
    """Receive files (path, size, executable) one after another. After the first failure the rest is received and thrown away."""
    failure: Exception | None = None
    for path, size, executable in files:
        pieces = channel.chunks(size)
        if failure is None:
            try:
                with as_agent():
                    _put(parts_of(path), pieces, 0o755 if executable else 0o644)
            except (OSError, Refused) as error:
                failure = error
        for _ in pieces:
            pass
    if failure is not None:
        raise failure
    channel.reply({"ok": True})


def _put(parts: list[str], pieces: Iterator[bytes], mode: int) -> None:
    with folder_of(parts, make=True) as folder:
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISLNK(os.lstat(parts[-1], dir_fd=folder).st_mode):
                raise Refused(f"{parts[-1]!r} is a link, and the path goes through a link")
            os.unlink(parts[-1], dir_fd=folder)  # a new file: old rights and hard links are nobody's business
        file = opened(parts[-1], NEW, folder)
    try:
        os.fchmod(file, mode)
        for piece in pieces:
            view = memoryview(piece)
            while view:
                view = view[os.write(file, view) :]
    finally:
        os.close(file)


def snapshot(channel: Channel, limit: int) -> None:
    """Every regular file. One that a background process cuts while it is read ends in NUL bytes: its size was told before."""
    with as_agent():
        files: list[tuple[str, int, bool]] = []
        total = names = 0
        for path, size, executable in _walk(opened(WORKDIR, FOLDER), ""):
            files.append((path, size, executable))
            total += size
            names += len(json.dumps(path))
            if total > limit or len(files) > MAX_FILES or names > MAX_NAMES:
                raise Refused(
                    f"the work tree claims more than {limit} bytes, {MAX_FILES} files or {MAX_NAMES} bytes of names"
                )
        channel.reply({"ok": True, "files": files, "payload": total})
        for path, size, _ in files:
            _send(channel, path, size)


def _walk(folder: int, prefix: str) -> Iterator[tuple[str, int, bool]]:
    """(path, size, executable) of every regular file, and closes `folder`. Links, devices, FIFOs and names that are not UTF-8
    are left out."""
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        for entry in entries:
            # Gone, a link or no folder any more, since a moment: a background process may change the tree meanwhile.
            with contextlib.suppress(UnicodeEncodeError, FileNotFoundError, NotADirectoryError, Refused):
                entry.name.encode()
                if entry.is_dir(follow_symlinks=False):
                    yield from _walk(opened(entry.name, FOLDER, folder), f"{prefix}{entry.name}/")
                elif entry.is_file(follow_symlinks=False):
                    found_now = entry.stat(follow_symlinks=False)
                    yield prefix + entry.name, found_now.st_size, bool(found_now.st_mode & stat.S_IXUSR)
    finally:
        os.close(folder)


def _send(channel: Channel, path: str, size: int) -> None:
    """Exactly `size` bytes, whatever has become of the file."""
    with contextlib.suppress(OSError, Refused), regular(path) as file:
        while size and (piece := os.read(file, min(size, PIECE))):
            size -= len(piece)
            channel.send(piece)
    while size:
        piece = bytes(min(size, PIECE))
        size -= len(piece)
        channel.send(piece)
