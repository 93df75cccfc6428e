"""One DuckDB per lake and process, locked down: it reads that lake's files and nothing else, whatever SQL it is given."""

import os
import shutil
import threading
from collections import OrderedDict
from importlib import resources
from pathlib import Path

import duckdb

from lakehouse import objects
from lakehouse.home import home

_KEPT = 8  # lakes of one process whose DuckDB stays: making one takes tens of milliseconds
_engines: OrderedDict[str, duckdb.DuckDBPyConnection] = OrderedDict()
_starting = threading.Lock()


def cursor(lake: str) -> duckdb.DuckDBPyConnection:
    """A new connection to the lake's DuckDB."""
    with _starting:
        if lake not in _engines:
            _engines[lake] = _locked(lake)
            while len(_engines) > _KEPT:
                _engines.popitem(last=False)  # ends when its last cursor is closed
        _engines.move_to_end(lake)
        return _engines[lake].cursor()


def _locked(lake: str, memory: str | None = None) -> duckdb.DuckDBPyConnection:
    """A DuckDB that reads the lake alone. `memory`, such as "2GB": beyond it, it spills; None: DuckDB's default."""
    engine = duckdb.connect(
        config={
            # The extension is of the same locked wheels as DuckDB itself. Checking its signature as well takes over a
            # second of every process.
            "allow_unsigned_extensions": True,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "temp_directory": str(_spill()),
            "temp_file_encryption": True,  # what does not fit into memory holds what the tables hold
            **({} if memory is None else {"memory_limit": memory}),
        }
    )
    engine.execute(f"load {_quoted(_extension('delta'))}")
    engine.execute(f"load {_quoted(_extension('httpfs'))}")  # object stores; and it brings what encrypts a spill
    secret = objects.secret(lake)
    if secret is not None:
        engine.execute("set allow_persistent_secrets = false")
        engine.execute(secret)
    engine.execute("set global timezone = 'UTC'")
    engine.execute("set global parquet_metadata_cache = true")  # a look-up would read the same footers again
    engine.execute("set global python_enable_replacements = false")  # a name in SQL is a table, never a Python variable
    engine.execute(f"set allowed_directories = [{_quoted(lake)}]")
    engine.execute("set enable_external_access = false")
    engine.execute("set lock_configuration = true")
    return engine


def _spill() -> Path:
    """This process's folder for what does not fit into memory. DuckDB removes it; those of killed processes go here."""
    folder = home().cache / "duckdb"
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.iterdir():
        if left.name.isdecimal() and not Path("/proc", left.name).exists():
            shutil.rmtree(left, ignore_errors=True)
    return folder / str(os.getpid())


def _extension(name: str) -> str:
    """The file of an extension, from its wheel."""
    version = f"v{duckdb.__version__}"
    return str(resources.files(f"duckdb_extension_{name}") / "extensions" / version / f"{name}.duckdb_extension")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
