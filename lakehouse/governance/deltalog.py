"""What Delta's log says of files that are gone: it holds the least and greatest values of their columns, and predicates.

A commit is a JSON file of one action per line, a checkpoint a Parquet file of one action per row
(https://github.com/delta-io/delta/blob/master/PROTOCOL.md). Statistics are optional in both, so blanking those of a file
leaves a valid log; everything else stays as it was written, and with it every version whose files are all there.
"""

import io
import json
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakehouse.governance.files import LOG, Files

Span = tuple[int, int]  # first and last version, both within
_COMMIT = re.compile(rf"{LOG}(\d{{20}})\.json")
_STATED = ("add", "remove")  # actions with statistics
_BLANK = "erased"


def lifetimes(files: Files, gone: Iterable[str]) -> dict[str, Span]:
    """The versions that each of these data files is part of; one that no commit names is left out."""
    wanted, added, removed = set(gone), dict[str, int](), dict[str, int]()
    newest = 0
    for path in files.log():
        found = _COMMIT.fullmatch(path)
        if found is None:
            continue
        version = int(found[1])
        newest = max(newest, version)
        for action in _actions(files.read(path)):
            for kind, times in (("add", added), ("remove", removed)):
                name = unquote(action.get(kind, {}).get("path", ""))
                if name in wanted:
                    times[name] = version
    return {one: (added.get(one, 0), removed.get(one, newest + 1) - 1) for one in added.keys() | removed.keys()}


def merged(spans: Iterable[Span]) -> list[Span]:
    """The same versions in the fewest spans."""
    told: list[Span] = []
    for first, last in sorted(spans):
        if told and first <= told[-1][1] + 1:
            told[-1] = (told[-1][0], max(told[-1][1], last))
        else:
            told.append((first, last))
    return told


def scrub(files: Files, gone: set[str]) -> int:
    """Blank the statistics of these data files, and the predicates of deletions, all through the log; how many log files."""
    changed = 0
    for path in files.log():
        before = files.read(path)
        after = _commit(before, gone) if path.endswith(".json") else _checkpoint(before, gone)
        if after is not None:
            files.replace(path, after)
            changed += 1
    return changed


def _actions(commit: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in commit.splitlines() if line.strip()]


def _commit(content: bytes, gone: set[str]) -> bytes | None:
    """The commit without what it must not say; None where it does not say it."""
    actions, touched = _actions(content), False
    for action in actions:
        for kind in _STATED:
            about = action.get(kind)
            if about and about.get("stats") and unquote(about["path"]) in gone:
                about["stats"], touched = None, True
        told = action.get("commitInfo", {})
        asked = told.get("operationParameters") or {}
        if told.get("operation") in ("DELETE", "UPDATE") and asked.get("predicate") not in (None, _BLANK):
            asked["predicate"], touched = _BLANK, True
    return "".join(json.dumps(a, separators=(",", ":")) + "\n" for a in actions).encode() if touched else None


def _checkpoint(content: bytes, gone: set[str]) -> bytes | None:
    held = pq.read_table(io.BytesIO(content))
    touched = False
    for kind in _STATED:
        if kind not in held.column_names:
            continue
        column = held[kind].combine_chunks()
        hit = pc.is_in(_unquoted(pc.struct_field(column, "path")), value_set=pa.array(sorted(gone), pa.string()))
        fields = [column.type.field(i) for i in range(column.type.num_fields)]
        parts = [_field(column, field, hit) for field in fields]
        if any(changed for _, changed in parts):
            again = pa.StructArray.from_arrays([part for part, _ in parts], fields=fields, mask=pc.is_null(column))
            held = held.set_column(held.column_names.index(kind), held.schema.field(kind), again)
            touched = True
    if not touched:
        return None
    out = io.BytesIO()
    pq.write_table(held, out)
    return out.getvalue()


def _field(column: pa.StructArray, field: pa.Field, hit: pa.Array) -> tuple[pa.Array, bool]:
    """One field of the actions, NULL where `hit` and it holds statistics; and whether that changed anything."""
    values = column.field(field.name)  # as it lies there: `pc.struct_field` would carry the NULLs of the action into it
    if not field.name.startswith("stats"):
        return values, False
    told = pc.and_(hit, pc.is_valid(values))
    if not pc.any(told).as_py():
        return values, False
    return pc.if_else(told, pa.scalar(None, field.type), values), True


def _unquoted(paths: pa.Array) -> pa.Array:
    return pa.array([None if path is None else unquote(path) for path in paths.to_pylist()], pa.string())
