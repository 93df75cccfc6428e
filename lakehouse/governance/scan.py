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
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse import store
from lakehouse.governance.files import Files
from lakehouse.governance.matcher import SHORTEST, Matcher
from lakehouse.governance.probes import Probes, flat, longest, spelled
from lakehouse.schema import TABLES

CHUNK = 1 << 24
LARGEST_UNPACKED = 1 << 30  # bytes of one archive's contents that are looked at
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
            _file(path, str(path), search, scanned)


def tables(lake: str, search: Search, scanned: Scanned) -> None:
    """Look through every file of every table of a lake on an object store."""
    for table in TABLES:
        delta = store.opened(lake, table)
        if delta is not None:
            files = Files(lake, delta)
            for path in files.sizes():
                _whole(files.read(path), f"{lake}/{table}/{path}", search, scanned)


def _file(path: Path, place: str, search: Search, scanned: Scanned) -> None:
    try:
        with path.open("rb") as file:
            head = file.read(4)
            file.seek(0)
            if _unpacker(path.name, head):
                _whole(file.read(), place, search, scanned)
                return
            scanned.files += 1
            rest = b""
            while chunk := file.read(CHUNK):
                scanned.bytes += len(chunk)
                scanned.add(place, search(rest + chunk))
                rest = (rest + chunk)[-search.overlap :]
    except FileNotFoundError:
        return  # gone while we looked: a log that was rotated, a file of a running server
    except OSError as error:
        scanned.unread.append(f"{place}: {error}")


def _whole(content: bytes, place: str, search: Search, scanned: Scanned) -> None:
    scanned.files += 1
    scanned.bytes += len(content)
    scanned.add(place, search(content))
    unpack = _unpacker(place, content[:4])
    if unpack is None:
        return
    try:
        scanned.add(place, unpack(content, search))
    except (OSError, EOFError, ValueError, zlib.error, zipfile.BadZipFile, RuntimeError) as error:
        scanned.unread.append(f"{place}: {error}")


def _unpacker(name: str, head: bytes) -> Callable[[bytes, Search], set[str]] | None:
    if head == b"PAR1":
        return _parquet
    if head[:2] == b"\x1f\x8b":
        return lambda content, search: _stream(gzip.GzipFile(fileobj=io.BytesIO(content)), search)
    if head == b"PK\x03\x04":
        return _zip
    if len(head) > 1 and head[0] == 0x78 and head[1] in (0x01, 0x5E, 0x9C, 0xDA):
        return lambda content, search: search(zlib.decompressobj().decompress(content, LARGEST_UNPACKED))
    return None


def _parquet(content: bytes, search: Search) -> set[str]:
    held = pq.ParquetFile(io.BytesIO(content))
    found: set[str] = set()
    for group in range(held.num_row_groups):
        for column in held.read_row_group(group).columns:
            found |= search.column(column)
    return found


def _zip(content: bytes, search: Search) -> set[str]:
    found: set[str] = set()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for name in archive.namelist():
            found |= search(name.encode())
            with archive.open(name) as member:
                found |= _stream(member, search)
    return found


def _stream(stream: "IO[bytes] | gzip.GzipFile", search: Search) -> set[str]:
    found: set[str] = set()
    rest, total = b"", 0
    while (chunk := stream.read(CHUNK)) and total < LARGEST_UNPACKED:
        total += len(chunk)
        found |= search(rest + chunk)
        rest = (rest + chunk)[-search.overlap :]
    return found


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
