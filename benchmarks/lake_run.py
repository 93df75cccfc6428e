"""One size of the lake's benchmark, in a process of its own so that its peak memory is its own.

`python -m benchmarks.lake_run TOKENS FOLDER [--peers]` prints one JSON object.
"""

import argparse
import json
import resource
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import lake_peers
from benchmarks.lake_data import MODEL, Tables, Trajectories
from benchmarks.report import middle, say
from lakehouse import compaction, landing, store
from lakehouse.quarantine import sort_out
from lakehouse.query import connect
from lakehouse.trajectory import trajectory
from lakehouse.write import Writer, to_arrow

EPISODES = 512  # of a batch that lands: about half a million sampled tokens
LOOKUPS = 20
TOKENS = ("completion_token_ids", "logprobs", "weight_versions")


def land(lake: str, tables: Tables) -> None:
    """What `Writer.land` does with a batch that has been through the door."""
    sound, refused = sort_out(tables, landing.known(lake, [MODEL]))
    sound["redactions"] = to_arrow("redactions", [])
    landed = landing.land(lake, sound, refused, [])
    if landed.episodes != tables["episodes"].num_rows:
        raise RuntimeError(f"of {tables['episodes'].num_rows} episodes {landed.episodes} landed")
    compaction.tend_landed(lake, landed.version)


def parquet(folder: Path, tables: Tables) -> None:
    for name, data in tables.items():
        pq.write_table(data, folder / f"{name}.parquet", compression="zstd")


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def measure(tokens: int, folder: Path, *, peers: bool) -> dict[str, Any]:
    lake, plain = str(folder / "lake"), folder / "plain"
    plain.mkdir(parents=True)
    made = Trajectories(episodes=EPISODES)
    against = lake_peers.all_of(folder) if peers else []
    found: dict[str, Any] = {"tokens": 0, "episodes": 0, "land_s": 0.0, "parquet_s": 0.0}
    number = 0
    while found["tokens"] < tokens:
        tables = made.batch(number)
        sides = [("land_s", partial(land, lake, tables)), ("parquet_s", partial(parquet, plain, tables))]
        for name, work in sides if number % 2 else reversed(sides):
            found[name] += timed(work)
        for peer in against:
            peer.write(tables["calls"])
        found["tokens"] += pc.sum(tables["episodes"]["n_completion_tokens"]).as_py()
        found["episodes"] += EPISODES
        number += 1
        if number % 20 == 0:
            say(f"{found['tokens'] / 1e6:.0f} M of {tokens / 1e6:.0f} M tokens landed")
    found["landed_files"] = len(_files(lake, "calls"))
    found["compact_s"] = timed(Writer(lake).compact)
    found["files"] = len(_files(lake, "calls"))
    found["calls_bytes"] = sum(size for _, size in _files(lake, "calls"))
    found["bytes_per_token"] = _token_bytes(lake) / found["tokens"]
    wanted = _some(lake)
    found["lookup_ms"], found["lookup_cpu_ms"] = _lookup(lake, wanted)
    found["trajectory_ms"] = middle([timed(partial(trajectory, lake, one)) for one in wanted[:LOOKUPS]]) * 1000
    found["scan_s"] = _scan(lake)
    for peer in against:
        found[peer.name] = peer.told(wanted[:LOOKUPS])
    found["peak_rss_gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    shutil.rmtree(plain)
    return found


def _files(lake: str, table: str) -> list[tuple[str, int]]:
    delta = store.opened(lake, table)
    if delta is None:
        raise RuntimeError(f"table {table} is not there")
    adds = delta.get_add_actions(flatten=True)
    return list(zip(adds["path"].to_pylist(), adds["size_bytes"].to_pylist(), strict=True))


def _token_bytes(lake: str) -> int:
    """Bytes that id, log-prob and version of the sampled tokens take in the files of today."""
    total = 0
    for path, _ in _files(lake, "calls"):
        held = pq.ParquetFile(Path(lake, "calls", path)).metadata
        for number in range(held.num_row_groups):
            columns = (held.row_group(number).column(i) for i in range(held.num_columns))
            total += sum(c.total_compressed_size for c in columns if c.path_in_schema.split(".")[0] in TOKENS)
    return total


def _some(lake: str) -> list[str]:
    with connect(lake) as connection:
        rows = connection.execute(
            "select episode_id from episodes order by md5(episode_id || 'bench') limit $1", [LOOKUPS]
        )
        return [name for (name,) in rows.fetchall()]


def _lookup(lake: str, wanted: list[str]) -> tuple[float, float]:
    """Milliseconds until all calls of an episode, with all their columns, are in memory: the median, and of processor time.

    The connection is open and has been asked about other episodes, as a notebook's or a viewer's.
    """
    sql = "from calls where episode_id = $1 order by call_index"
    with connect(lake) as connection:

        def ask(one: str) -> None:
            connection.execute(sql, [one]).to_arrow_table()

        for one in wanted[LOOKUPS:]:
            ask(one)
        cpu = time.process_time()
        took = [timed(partial(ask, one)) for one in wanted[:LOOKUPS]]
        return middle(took) * 1000, (time.process_time() - cpu) * 1000 / LOOKUPS


def _scan(lake: str) -> float:
    """Seconds of a question over every token."""
    with connect(lake) as connection:
        sql = "select weight_version, count(*), avg(logprob) from tokens group by weight_version"
        return timed(lambda: connection.execute(sql).fetchall())


def run() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tokens", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--peers", action="store_true", help="the same calls as SQLite blobs and JSON lines too")
    told = parser.parse_args()
    print(json.dumps(measure(told.tokens, told.folder, peers=told.peers)))


if __name__ == "__main__":
    run()
