"""What is done about each file in which the scan has found something: by what kind of file it is and whose.

Copies that a training run or a server made are removed; logs and the servers' SQLite databases go on without the words. What
is none of these is left for people: they know what it is.
"""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from lakehouse.governance.scan import Scanned, Search
from lakehouse.home import home

COPIES = ("runs", "mlflow", "prefect", "cache")  # under the home folder: what is there was made from something else
PATIENCE_S = 30.0


@dataclass
class Swept:
    """Paths, relative to the home folder."""

    removed: list[str] = field(default_factory=list)
    blanked: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.removed or self.blanked)


def sweep(scanned: Scanned, search: Search) -> Swept:
    """Remove or blank what was found, as far as it is known how. Scan again afterwards."""
    done, root = Swept(), home().root
    for place in sorted({place.removesuffix("-wal").removesuffix("-shm") for place in scanned.found}):
        path = Path(place)  # a database is dealt with as a whole
        if not path.is_relative_to(root) or not path.is_file():
            continue
        name = path.relative_to(root)
        if _is_sqlite(path):
            blank_database(path, search)
            done.blanked.append(str(name))
        elif name.parts[0] == "logs":
            _blank_file(path, search)
            done.blanked.append(str(name))
        elif name.parts[0] in COPIES and path.suffix != ".safetensors":
            path.unlink()
            done.removed.append(str(name))
    return done


def blank_database(path: Path, search: Search) -> None:
    """Overwrite what is found in any column of any table, and the free pages of the file. Its server may go on running.

    sqlite3.OperationalError where it holds a lock for too long.
    """
    db = sqlite3.connect(path, timeout=PATIENCE_S, isolation_level=None)
    try:
        db.execute("pragma secure_delete = on")
        db.execute("begin immediate")
        for table in _tables(db):
            _blank_table(db, table, search)
        db.execute("commit")
        db.execute("pragma wal_checkpoint(truncate)").fetchall()
        if _still(path, search):
            db.execute("vacuum")  # free pages from before hold it
            db.execute("pragma wal_checkpoint(truncate)").fetchall()
    finally:
        db.close()


def _blank_table(db: sqlite3.Connection, table: str, search: Search) -> None:
    columns = [row[1] for row in db.execute(f"pragma table_info({_quoted(table)})")]
    listed = ", ".join(map(_quoted, columns))
    for rowid, *values in db.execute(f"select rowid, {listed} from {_quoted(table)}").fetchall():  # noqa: S608 - quoted
        for column, value in zip(columns, values, strict=True):
            raw = value.encode() if isinstance(value, str) else value
            if isinstance(raw, bytes) and search(raw):
                clean = search.blanked(raw)
                written = clean.decode() if isinstance(value, str) else clean
                where = f"update {_quoted(table)} set {_quoted(column)} = ? where rowid = ?"  # noqa: S608 - quoted
                db.execute(where, (written, rowid))


def _tables(db: sqlite3.Connection) -> Iterator[str]:
    """Ordinary tables: those of a virtual table follow it."""
    found = db.execute("select name from pragma_table_list where type = 'table' and wr = 0 and schema = 'main'")
    yield from [name for (name,) in found if not name.startswith("sqlite_")]


def _still(path: Path, search: Search) -> bool:
    there = [path, path.with_name(path.name + "-wal")]
    return any(search(file.read_bytes()) for file in there if file.exists())


def _blank_file(path: Path, search: Search) -> None:
    """In place: whoever appends to it goes on."""
    with path.open("r+b") as file:
        content = file.read()
        clean = search.blanked(content)
        file.seek(0)
        file.write(clean)


def _is_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
