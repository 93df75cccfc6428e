"""The checks: what must hold of a lake, as SQL that gives no rows, and the files it is made of.

A file of `sql/checks` says in its header what its rows are (`grain`), and with `level: note` that rows are no fault.
"""

from dataclasses import dataclass
from typing import Literal

from lakehouse import store
from lakehouse.governance.files import Files, current
from lakehouse.query import QueryError, connect, relations
from lakehouse.schema import TABLES

FILES = "files"


@dataclass(frozen=True)
class Result:
    """`rows` of one check; None where it could not be run, and `about` says why."""

    name: str
    rows: int | None
    level: Literal["error", "note"]
    about: str

    @property
    def failed(self) -> bool:
        return self.rows is None or (self.rows > 0 and self.level == "error")

    @property
    def told(self) -> str:
        if self.rows is None:
            return "[red]cannot be run[/red]"
        if self.failed:
            return f"[red]fails: {self.rows:,} rows[/red]"
        return "passes" if not self.rows else f"passes ({self.rows:,} rows to know of)"


def run(lake: str | None = None, *, whole: bool = False) -> list[Result]:
    """Every check, also where an earlier one fails. `whole`: files are read to their end, not only looked at."""
    results = [_files(store.location(lake), whole=whole)]
    for check in relations():
        if check.name.startswith("checks."):
            name = check.name.removeprefix("checks.")
            level: Literal["error", "note"] = "note" if check.header.get("level") == "note" else "error"
            about = check.header.get("grain", "")
            try:
                with connect(lake) as connection:  # one each: a table that cannot be read fails those that read it
                    found = connection.execute(f"select count(*) from {check.quoted}").fetchone()  # noqa: S608 - ours
                results.append(Result(name, int(found[0]) if found else 0, level, about))
            except (QueryError, store.LakeError) as error:
                results.append(Result(name, None, "error", str(error)))
    return results


def _files(lake: str, *, whole: bool) -> Result:
    """Whether every file of every table's newest version is there and can be read."""
    about = "files of the newest versions that are missing or damaged: there must be none"
    bad = []
    for table in TABLES:
        try:
            delta = store.opened(lake, table)
        except store.LakeError as error:
            bad.append(str(error))
            continue
        if delta is not None:
            files = Files(lake, delta)
            sound = files.whole if whole else lambda path, files=files: files.columns(path, []) is not None
            bad += [f"{table}/{path}" for path in sorted(current(delta)) if not sound(path)]
    return Result(FILES, len(bad), "error", f"{about}: {'; '.join(bad[:5])}" if bad else about)
