"""The files of one Delta table as they lie there, of whatever version: data, log and what a killed writer left.

Delta's own operations see the files of one version. What must be gone has to be gone from all of them.
"""

import os
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler

from lakehouse import store
from lakehouse.records import now

LOG = "_delta_log/"
IN_FLIGHT_S = 3600.0  # a commit follows its files sooner than this


class Files:
    """Files of a table, named relative to its folder."""

    def __init__(self, lake: str, delta: DeltaTable) -> None:
        self._root = Path(unquote(urlsplit(delta.table_uri).path)) if store.is_folder(lake) else None
        self._objects = None if self._root else DeltaStorageHandler.from_table(delta._table, store.options(lake))
        self.filesystem: pyarrow.fs.FileSystem = (
            pyarrow.fs.SubTreeFileSystem(str(self._root), pyarrow.fs.LocalFileSystem())
            if self._objects is None
            else pyarrow.fs.PyFileSystem(self._objects)
        )

    def sizes(self) -> dict[str, int]:
        """Every file, with its bytes."""
        found = self.filesystem.get_file_info(pyarrow.fs.FileSelector("", recursive=True))
        return {one.path.lstrip("/"): int(one.size) for one in found if one.type == pyarrow.fs.FileType.File}

    def data(self) -> list[str]:
        return [path for path in self.sizes() if not path.startswith(LOG) and path.endswith(".parquet")]

    def log(self) -> list[str]:
        """Commits, compacted commits, checkpoints and their parts."""
        return [path for path in self.sizes() if path.startswith(LOG) and path.endswith((".json", ".parquet"))]

    def in_flight(self, path: str) -> bool:
        """Whether a writer may be about to commit this file, which no commit names yet."""
        written = self.filesystem.get_file_info(path).mtime
        return written is None or now() - written < timedelta(seconds=IN_FLIGHT_S)

    def read(self, path: str) -> bytes:
        with self.filesystem.open_input_file(path) as file:
            return bytes(file.read())

    def whole(self, path: str) -> bool:
        """Whether every value of a Parquet file can be read; a row group at a time is in memory."""
        try:
            with self.filesystem.open_input_file(path) as file:
                held = pq.ParquetFile(file)
                for number in range(held.num_row_groups):
                    held.read_row_group(number)
                return True
        except (pa.ArrowException, OSError, EOFError):
            return False

    def columns(self, path: str, names: list[str]) -> pa.Table | None:
        """These columns of a Parquet file, as far as it has them; None where it cannot be read: half-written, or damaged."""
        try:
            with self.filesystem.open_input_file(path) as file:
                held = pq.ParquetFile(file)
                return held.read(columns=[name for name in names if name in held.schema_arrow.names])
        except (pa.ArrowInvalid, OSError, EOFError):
            return None

    def replace(self, path: str, content: bytes) -> None:
        """Other content under the same name, at once, with the time it had: Delta takes a commit's time from there."""
        if self._root is None:
            # Arrow's stream hands over buffers of its own, which the Delta library's does not take.
            stream = self._objects._handler.open_output_stream(path, None)  # type: ignore[union-attr]
            stream.write(content)
            stream.close()  # type: ignore[union-attr]  # its stub lacks it
            return
        target = self._root / path
        was = target.stat()
        part = target.with_name(f".{target.name}.part")
        part.write_bytes(content)
        os.utime(part, ns=(was.st_atime_ns, was.st_mtime_ns))
        part.replace(target)

    def delete(self, path: str) -> None:
        """Remove a file; one that is gone already is no error."""
        try:
            self.filesystem.delete_file(path)
        except FileNotFoundError:
            return


def current(delta: DeltaTable) -> set[str]:
    """The data files of the version that `delta` is at, named as `Files` names them."""
    return {unquote(path) for path in pa.table(delta.get_add_actions())["path"].to_pylist()}
