"""What gives an erased episode away: its id, its subject's name, and pieces of its text and of its tokens that only it has.

The pieces are chosen while the rows are still there. A piece that some row which stays has too proves nothing, and is left
out; so is a piece too short to be told from chance.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict

from lakehouse import store
from lakehouse.governance.files import Files
from lakehouse.governance.matcher import Matcher
from lakehouse.governance.purge import Rule
from lakehouse.schema import TABLES

TEXT_BYTES = (20, 40)  # of a piece, from and to
TOKENS = (8, 16)
PER_VALUE = 2  # pieces of one string or list
PER_KEY = 3  # values of one column that pieces are taken of, per episode
BATCH_ROWS = 512
ESCAPED = 8  # backslashes before one character: JSON within JSON within JSON
# What JSON writes behind a backslash.
_SHORT = {'"': '"', "/": "/", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}
_SPECIAL = re.compile(r"[^\x20-\x7e]|[\"\\/<>&']")  # what some writer of JSON escapes
_PLAIN = re.compile(r"[^\"\\\x00-\x1f\x7f]+")  # the same bytes in text as in JSON, however often it is escaped


class Probes(BaseModel):
    """What is looked for. `common`: how many pieces were left out because rows that stay have them."""

    model_config = ConfigDict(extra="forbid")

    names: list[str] = []  # ids, and the subject: whole words
    texts: list[str] = []
    tokens: list[list[int]] = []
    common: int = 0

    def patterns(self) -> dict[bytes, str]:
        """Every form in which a piece may lie in a file, with what it is."""
        forms = {text.encode(): "text" for text in self.texts}
        once = [json.dumps(text)[1:-1] for text in self.texts]
        forms |= {form.encode(): "text" for text in once for form in (text, json.dumps(text)[1:-1])}
        for ids in self.tokens:
            for number in (np.int32, np.int64):
                forms[np.array(ids, number).tobytes()] = "tokens"
            for between in (",", ", "):
                forms[between.join(map(str, ids)).encode()] = "tokens"
        return forms


def spelled(name: str) -> bytes:
    """A regular expression of a name as it stands in text, and as any writer of JSON escapes it, one document in another too."""
    return b"".join(map(_character, name))


def longest(name: str) -> int:
    """Bytes of the longest match of `spelled`."""
    return len(name.encode("utf-16-le")) // 2 * (ESCAPED + len("u0000"))


def _character(one: str) -> bytes:
    raw = re.escape(one.encode())
    if not _SPECIAL.match(one):
        return raw
    slashes = rb"\\{1,%d}" % ESCAPED
    units = memoryview(one.encode("utf-16")[2:]).cast("H")
    code = b"".join(slashes + b"u(?i:%04x)" % unit for unit in units)
    if one == "\\":
        return b"(?:" + slashes + b"|" + code + b")"
    short = [slashes + _SHORT[one].encode()] if one in _SHORT else []
    return b"(?:" + b"|".join([code, *short, raw]) + b")"


def choose(lake: str, going: Mapping[str, Rule], names: Sequence[str]) -> Probes:
    """Probes of the rows that are `going`, by table, which no row that stays has. Reads the newest versions, in batches."""
    texts: dict[bytes, str] = {}
    tokens: dict[bytes, list[int]] = {}
    for table, rule in going.items():
        taken: Counter[tuple[str, str]] = Counter()
        for batch in _batches(lake, table, rule.columns):
            rows = batch.filter(rule.held(batch))
            for column in _content(table, rows):
                for key, value in zip(rows[rule.columns[0]].to_pylist(), rows[column].to_pylist(), strict=True):
                    if value and taken[key, column] < PER_KEY:
                        taken[key, column] += 1
                        texts |= {piece.encode(): piece for piece in _pieces(value)} if isinstance(value, str) else {}
                        tokens |= {} if isinstance(value, str) else {_raw(ids): ids for ids in _windows(value)}
    matcher = Matcher([*texts, *tokens])
    shared: set[bytes] = set()
    for table in TABLES:
        gone = going.get(table)
        for batch in _batches(lake, table, gone.columns if gone else []):
            rows = batch.filter(pc.invert(gone.held(batch))) if gone else batch
            for column in _content(table, rows):
                for data in flat(rows[column]):
                    shared |= matcher(data)
    return Probes(
        names=sorted(set(names)),
        texts=[text for raw, text in texts.items() if raw not in shared],
        tokens=[ids for raw, ids in tokens.items() if raw not in shared],
        common=len(shared),
    )


def _content(table: str, rows: pa.Table) -> list[str]:
    return [name for name in rows.column_names if TABLES[table].column(name).sensitivity == "content"]


def _batches(lake: str, table: str, keys: Sequence[str]) -> Iterator[pa.Table]:
    """The table's columns of content at its newest version, with `keys`."""
    delta = store.opened(lake, table)
    if delta is None:
        return
    there = {field.name for field in delta.schema().fields}
    wanted = [name for name, about in TABLES[table].columns.items() if about.sensitivity == "content"]
    columns = [name for name in dict.fromkeys([*keys, *wanted]) if name in there]
    if columns:
        data = delta.to_pyarrow_dataset(filesystem=Files(lake, delta).filesystem)
        for batch in data.to_batches(columns=columns, batch_size=BATCH_ROWS):
            yield pa.table(batch)


def flat(column: pa.ChunkedArray) -> Iterator[bytes]:
    """The values of a column laid end to end: text as UTF-8, numbers as they lie in memory. Nested columns by their leaves."""
    for chunk in column.chunks:
        yield from _flat(chunk)


def _flat(array: pa.Array) -> Iterator[bytes]:
    kind = array.type
    if pa.types.is_dictionary(kind):
        yield from _flat(array.dictionary)
    elif pa.types.is_struct(kind):
        for index in range(kind.num_fields):
            yield from _flat(array.field(index))
    elif pa.types.is_map(kind):
        yield from _flat(array.keys)
        yield from _flat(array.items)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _flat(array.flatten())
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind):
        yield from _buffer(pc.fill_null(array, "" if not pa.types.is_binary(kind) else b""))
    elif pa.types.is_integer(kind):
        yield pc.drop_null(array).to_numpy(zero_copy_only=False).tobytes()


def _buffer(array: pa.Array) -> Iterator[bytes]:
    whole = pa.concat_arrays([array])  # its own buffers, from the first value on
    data = whole.buffers()[-1]
    if data is not None and len(whole):
        wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
        ends = np.frombuffer(whole.buffers()[1], np.int64 if wide else np.int32)
        first, last = ends[whole.offset], ends[whole.offset + len(whole)]
        yield data.slice(int(first), int(last - first)).to_pybytes()


def _pieces(value: str) -> Iterator[str]:
    """The longest runs of a text, or of a JSON document's strings, cut to size from their middle."""
    runs = sorted({run for leaf in _leaves(value) for run in _PLAIN.findall(leaf)}, key=lambda run: (-len(run), run))
    for run in runs[:PER_VALUE]:
        raw = run.encode()
        if len(raw) >= TEXT_BYTES[0]:
            start = max(0, (len(raw) - TEXT_BYTES[1]) // 2)
            piece = raw[start : start + TEXT_BYTES[1]].decode(errors="ignore")
            if len(piece.encode()) >= TEXT_BYTES[0]:
                yield piece


def _leaves(value: str) -> Iterator[str]:
    try:
        document = json.loads(value)
    except ValueError:
        yield value
        return
    yield from _strings(document)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


def _windows(ids: list[int]) -> list[list[int]]:
    """The middle and the end of a list of tokens."""
    if len(ids) < TOKENS[0]:
        return []
    middle = max(0, (len(ids) - TOKENS[1]) // 2)
    return [ids[middle:][: TOKENS[1]], ids[-TOKENS[1] :]]


def _raw(ids: list[int]) -> bytes:
    return np.array(ids, np.int32).tobytes()
