"""A Delta table at one version, held open in DuckDB, so that a query does not read the table's log again.

Replaying the log costs more than reading an episode does. `delta_scan` replays it for every query; a catalog of DuckDB's delta
extension that is attached with `pin_snapshot` does so once.
"""

import contextlib
import json
from pathlib import Path

import duckdb

from lakehouse.objects import is_folder


class Snapshot:
    """One table, attached. `version` None: the newest, which `refresh` looks for.

    In an object store the newest version is looked up by every query, as there is no quick way to tell that it changed.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, name: str, uri: str, version: int | None) -> None:
        self._connection = connection
        self._catalog = f'"{name}"'  # with a slash, so that no SQL that is let in can name it
        self._uri = uri
        self._log = Path(uri, "_delta_log") if is_folder(uri) and version is None else None
        self._version = version
        self._attach()

    @property
    def relation(self) -> str:
        """For a FROM clause."""
        return f"{self._catalog}.{self._catalog}"

    def refresh(self) -> None:
        """Go on to the newest version, if there is a later one."""
        if self._log is None or not self._commit((-1 if self._version is None else self._version) + 1).exists():
            return
        self.close()
        self._attach()

    def close(self) -> None:
        self._connection.execute(f"detach database if exists {self._catalog}")

    def _attach(self) -> None:
        if self._log is not None:
            self._version = self._newest()
        options = "" if self._version is None else f", version {self._version}, pin_snapshot"
        where = self._uri.replace("'", "''")
        try:
            self._connection.execute(f"attach '{where}' as {self._catalog} (type delta{options})")
        except duckdb.Error:
            with contextlib.suppress(duckdb.Error):
                self.close()
            raise

    def _newest(self) -> int | None:
        """The newest version, from the last checkpoint on: the log of a long life is a large folder, and is not listed."""
        assert self._log is not None
        try:
            newest = int(json.loads((self._log / "_last_checkpoint").read_bytes())["version"])
        except (OSError, ValueError, KeyError):
            newest = -1
        newest = max(newest, -1 if self._version is None else self._version)
        while self._commit(newest + 1).exists():
            newest += 1
        return newest if newest >= 0 else None

    def _commit(self, version: int) -> Path:
        assert self._log is not None
        return self._log / f"{version:020}.json"
