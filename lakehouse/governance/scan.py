"""The byte scan: every file of a folder or of a lake, as it lies there and as it reads when it is unpacked.

Parquet is read column by column, since what is compressed or encoded by dictionary cannot be seen from outside; gzip, zlib
and zip are unpacked; everything, those too, is searched raw. What is encrypted cannot be searched: of the gateway's
journal the keys are what must be gone.
"""

import gzip
import io
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
from deltalake.fs import DeltaStorageHandler

from lakehouse import store
from lakehouse.governance.matcher import SHORTEST, Matcher
from lakehouse.governance.probes import Probes, flat, longest, spelled

CHUNK = 1 << 24
LARGEST_UNPACKED = 1 << 36  # bytes of one archive's contents: one made to be endless must not hold up an erasure
_ID = re.compile(r"ep-[0-9a-f]{24}")
_WITHIN = re.compile(rb"[A-Za-z0-9_-]")
_ESCAPE = re.compile(rb"\\(?:[bfnrt]|u[0-9a-fA-F]{4})$")  # in JSON a word may stand right behind such letters
_BEFORE = len(r"\u0000")


@dataclass
class Scanned:
    """What was looked through and where something was found: what, by place."""

    files: int = 0
    bytes: int = 0
    unread: list[str] = field(default_factory=list)  # files that could not be read or unpacked to their end
    found: dict[str, list[str]] = field(default_factory=dict)

    def add(self, place: str, found: Iterable[str]) -> None:
        told = sorted(set(found))
        if told:
            self.found[place] = sorted({*self.found.get(place, []), *told})


class Search:
    """Looks for probes in bytes. Names are whole words: `customer-1` is not found in `customer-10`."""

    def __init__(self, probes: Probes) -> None:
        ids = {name.encode(): "id" for name in probes.names if _ID.fullmatch(name)}  # not part of any other word
        self._what = {raw: what for raw, what in (probes.patterns() | ids).items() if len(raw) >= SHORTEST}
        self._pieces = Matcher(self._what)
        words = sorted((name for name in probes.names if not _ID.fullmatch(name)), key=len, reverse=True)
        self._words = re.compile(b"|".join(map(spelled, words))) if words else None
        self.overlap = max([self._pieces.longest, *(_BEFORE + longest(word) + 1 for word in words)])

    def __call__(self, data: bytes) -> set[str]:
        """What occurs: "id", "text", "tokens", or "name" for the subject and what is named after it."""
        return {self._what[raw] for raw in self._pieces(data)} | ({"name"} if self._named(data) else set())

    def blanked(self, data: bytes) -> bytes:
        """The data with everything that is found overwritten by as many asterisks."""
        for raw in self._pieces(data):
            data = data.replace(raw, b"*" * len(raw))
        if self._words is None:
            return data
        return self._words.sub(lambda hit: b"*" * len(hit[0]) if _whole_word(hit) else hit[0], data)

    def _named(self, data: bytes) -> bool:
        return self._words is not None and any(map(_whole_word, self._words.finditer(data)))

    def column(self, column: pa.ChunkedArray) -> set[str]:
        """The same in a column, whose values lie end to end."""
        found: set[str] = set()
        for data in flat(column):
            found |= {self._what[raw] for raw in self._pieces(data)}
        if self._words:
            for text in _strings(column):
                # Values apart from each other, so that a name at the edge of one is a whole word.
                if self._named("\n".join(value for value in text.to_pylist() if value).encode()):
                    found.add("name")
        return found


def _whole_word(hit: re.Match[bytes]) -> bool:
    before, after = hit.string[max(0, hit.start() - _BEFORE) : hit.start()], hit.string[hit.end() : hit.end() + 1]
    return not _WITHIN.match(after) and (not _WITHIN.match(before[-1:]) or bool(_ESCAPE.search(before)))


def replaced(text: str, name: str, by: str) -> str:
    """The text with another word wherever the name stands as a whole word, also as JSON escapes it."""
    put = by.encode()
    return re.sub(spelled(name), lambda hit: put if _whole_word(hit) else hit[0], text.encode()).decode()


def folder(root: Path, search: Search, scanned: Scanned, *, skip: Callable[[Path], bool] = lambda _: False) -> None:
    """Look through every file under a folder; links are not followed."""
    for where, _, names in os.walk(root):
        for name in sorted(names):
            path = Path(where, name)
            if path.is_symlink() or not path.is_file() or skip(path):
                continue
            scanned.add(str(path), search(os.fsencode(path.relative_to(root))))  # a name may say it too
            _file(partial(_opened, path), str(path), search, scanned)


def bucket(lake: str, search: Search, scanned: Scanned) -> None:
    """Look through every object under the URL of a lake on an object store, whoever put it there."""
    files = pyarrow.fs.PyFileSystem(DeltaStorageHandler(lake, options=store.options(lake)))
    for one in files.get_file_info(pyarrow.fs.FileSelector("", recursive=True)):
        if one.type == pyarrow.fs.FileType.File:
            name = one.path.lstrip("/")
            scanned.add(f"{lake}/{name}", search(name.encode()))
            _file(partial(_object, files, one.path), f"{lake}/{name}", search, scanned)


def _opened(path: Path) -> IO[bytes]:
    return path.open("rb")


def _object(files: pyarrow.fs.FileSystem, path: str) -> IO[bytes]:
    return io.BufferedReader(files.open_input_file(path), CHUNK)  # else a request for every few bytes


def _file(opened: Callable[[], IO[bytes]], place: str, search: Search, scanned: Scanned) -> None:
    try:
        with opened() as file:
            scanned.files += 1
            head = rest = b""
            while chunk := file.read(CHUNK):
                head = head or chunk[:4]
                scanned.bytes += len(chunk)
                scanned.add(place, search(rest + chunk))
                rest = (rest + chunk)[-search.overlap :]
            file.seek(0)
            for found in _inside(file, head, search):
                scanned.add(place, found)
    except FileNotFoundError:
        return  # gone while we looked: a log that was rotated, a file of a running server
    except (OSError, EOFError, ValueError, zlib.error, zipfile.BadZipFile, RuntimeError) as error:
        scanned.unread.append(f"{place}: {error}")


def _inside(file: IO[bytes], head: bytes, search: Search) -> Iterator[set[str]]:
    """What is found in a file's contents, by its first bytes; nothing where it is no archive."""
    if head == b"PAR1":
        yield from _parquet(file, search)
    elif head[:2] == b"\x1f\x8b":
        yield from _unpacked(_pieces(gzip.GzipFile(fileobj=file)), search)
    elif head == b"PK\x03\x04":
        yield from _unpacked(_zip(file), search)
    elif len(head) > 1 and head[0] == 0x78 and head[1] in (0x01, 0x5E, 0x9C, 0xDA):
        yield from _unpacked(_zlib(file), search)


def _unpacked(pieces: Iterable[bytes], search: Search) -> Iterator[set[str]]:
    """What is found in an archive's contents. ValueError where they are too many to be searched to their end."""
    rest, total = b"", 0
    for piece in pieces:
        total += len(piece)
        if total > LARGEST_UNPACKED:
            raise ValueError(f"unpacks to more than {LARGEST_UNPACKED:,} bytes and was not searched to its end")
        yield search(rest + piece)
        rest = (rest + piece)[-search.overlap :]


def _pieces(stream: IO[bytes] | gzip.GzipFile) -> Iterator[bytes]:
    while piece := stream.read(CHUNK):
        yield piece


def _zip(file: IO[bytes]) -> Iterator[bytes]:
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            yield f"\0{name}\0".encode()
            with archive.open(name) as member:
                yield from _pieces(member)


def _zlib(file: IO[bytes]) -> Iterator[bytes]:
    engine = zlib.decompressobj()
    while not engine.eof and (packed := engine.unconsumed_tail or file.read(CHUNK)):
        yield engine.decompress(packed, CHUNK)
    yield engine.flush()


def _parquet(file: IO[bytes], search: Search) -> Iterator[set[str]]:
    held = pq.ParquetFile(file)
    for group in range(held.num_row_groups):
        for column in held.read_row_group(group).columns:
            yield search.column(column)


def _strings(column: pa.ChunkedArray) -> Iterator[pa.Array]:
    for chunk in column.chunks:
        yield from _string_leaves(chunk)


def _string_leaves(array: pa.Array) -> Iterator[pa.Array]:
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        yield array
    elif pa.types.is_dictionary(kind):
        yield from _string_leaves(array.dictionary)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _string_leaves(array.flatten())
    elif pa.types.is_struct(kind):
        for index in range(kind.num_fields):
            yield from _string_leaves(array.field(index))
    elif pa.types.is_map(kind):
        yield from _string_leaves(array.keys)
        yield from _string_leaves(array.items)
