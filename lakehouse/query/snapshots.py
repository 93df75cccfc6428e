"""A Delta table at one version, held open in DuckDB, so that a query does not read the table's log again.

Replaying the log costs more than reading an episode does. `delta_scan` replays it for every query; a catalog of DuckDB's delta
extension that is attached with `pin_snapshot` does so once.
"""

import contextlib
from pathlib import Path

import duckdb

from lakehouse import store
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
        self.columns: dict[str, str] = {}  # their DuckDB types, by name
        self._attach()

    @property
    def relation(self) -> str:
        """For a FROM clause."""
        return f"{self._catalog}.{self._catalog}"

    def refresh(self) -> None:
        """Go on to the newest version, if there is a later one."""
        if self._log is not None and store.newest(self._log, self._version) != self._version:
            self.close()
            self._attach()

    def close(self) -> None:
        self._connection.execute(f"detach database if exists {self._catalog}")

    def _attach(self) -> None:
        if self._log is not None:
            self._version = store.newest(self._log)
        options = "" if self._version is None else f", version {self._version}, pin_snapshot"
        where = self._uri.replace("'", "''")

        def attach() -> None:
            try:
                self._connection.execute(f"attach '{where}' as {self._catalog} (type delta{options})")
                # This reads the log; `attach` does not.
                rows = self._connection.execute(f"describe {self.relation}").fetchall()
                self.columns = {row[0]: row[1] for row in rows}
            except duckdb.Error:
                with contextlib.suppress(duckdb.Error):
                    self.close()
                raise

        store.settled(attach)
