"""The same calls kept as others keep them: a SQLite row with blobs per call, and JSON lines read by DuckDB."""

import sqlite3
import time
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import orjson
import pyarrow as pa

from benchmarks.report import middle

LISTS = {"prompt_token_ids": "<i4", "completion_token_ids": "<i4", "logprobs": "<f4", "weight_versions": "<i4"}
TEXTS = ("request_messages", "response_message")


class SqliteBlobs:
    """One row per call, lists as little-endian blobs, an index over the episode."""

    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        self._path = folder / "calls.db"
        self._base = sqlite3.connect(self._path)
        self._base.execute("pragma journal_mode = wal")
        columns = ", ".join(
            ["episode_id text", "call_index integer", *(f"{n} blob" for n in LISTS), *(f"{n} text" for n in TEXTS)]
        )
        self._base.execute(f"create table calls ({columns})")
        self._base.execute("create index by_episode on calls (episode_id)")
        self._write_s = 0.0

    def write(self, calls: pa.Table) -> None:
        rows = calls.select(["episode_id", "call_index", *LISTS, *TEXTS])
        began = time.perf_counter()
        columns = [
            [one.values.to_numpy().astype(LISTS[name]).tobytes() for one in rows[name]]
            if name in LISTS
            else rows[name].to_pylist()
            for name in rows.column_names
        ]
        with self._base:
            self._base.executemany(
                f"insert into calls values ({', '.join('?' * len(columns))})", zip(*columns, strict=True)
            )
        self._write_s += time.perf_counter() - began

    def told(self, wanted: list[str]) -> dict[str, Any]:
        self._base.execute("pragma wal_checkpoint(truncate)")
        took = []
        for one in wanted:
            began = time.perf_counter()
            self._base.execute("select * from calls where episode_id = ? order by call_index", [one]).fetchall()
            took.append(time.perf_counter() - began)
        began = time.perf_counter()
        sums: dict[int, tuple[int, float]] = {}
        for versions, logprobs in self._base.execute("select weight_versions, logprobs from calls"):
            of, values = np.frombuffer(versions, "<i4"), np.frombuffer(logprobs, "<f4")
            for version in np.unique(of).tolist():
                n, total = sums.get(version, (0, 0.0))
                chosen = values[of == version]
                sums[version] = (n + len(chosen), total + float(chosen.sum()))
        scan_s = time.perf_counter() - began
        self._base.close()
        size = self._path.stat().st_size
        return {"write_s": self._write_s, "bytes": size, "lookup_ms": middle(took) * 1000, "scan_s": scan_s}


class JsonLines:
    """One line per call with all its columns, as frameworks dump rollouts; DuckDB reads the file."""

    name = "jsonl"
    looked_up = 3  # every look-up reads the whole file

    def __init__(self, folder: Path) -> None:
        self._path = folder / "calls.jsonl"
        self._write_s = 0.0

    def write(self, calls: pa.Table) -> None:
        began = time.perf_counter()
        with self._path.open("ab") as file:
            for batch in calls.to_batches(max_chunksize=256):
                file.writelines(orjson.dumps(row) + b"\n" for row in batch.to_pylist())
        self._write_s += time.perf_counter() - began

    def told(self, wanted: list[str]) -> dict[str, Any]:
        source = f"read_json('{self._path}', format = 'newline_delimited', maximum_object_size = 67108864)"
        with duckdb.connect() as base:
            took = []
            for one in wanted[: self.looked_up]:
                began = time.perf_counter()
                base.execute(f"from {source} where episode_id = $1 order by call_index", [one]).fetchall()
                took.append(time.perf_counter() - began)
            began = time.perf_counter()
            base.execute(
                f"""
                select weight_version, count(*), avg(logprob)
                from (select unnest(weight_versions) as weight_version, unnest(logprobs) as logprob from {source})
                group by weight_version
                """
            ).fetchall()
            scan_s = time.perf_counter() - began
        size = self._path.stat().st_size
        return {"write_s": self._write_s, "bytes": size, "lookup_ms": middle(took) * 1000, "scan_s": scan_s}


def all_of(folder: Path) -> list[SqliteBlobs | JsonLines]:
    return [SqliteBlobs(folder), JsonLines(folder)]
