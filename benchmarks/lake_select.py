"""Label and select over many short episodes, and a day of small shards; each in a process of its own.

`python -m benchmarks.lake_select select|day NUMBER FOLDER` prints one JSON object.
"""

import argparse
import json
import resource
import time
from pathlib import Path
from typing import Any

from benchmarks.lake_data import MODEL, SHORT, Trajectories
from benchmarks.lake_run import land
from lakehouse import store
from lakehouse.label import label
from lakehouse.records import ModelVersion, now
from lakehouse.schema import TABLES
from lakehouse.selection.select import Selection, select
from lakehouse.write import Writer

BATCH = 8192


def label_and_select(episodes: int, folder: Path) -> dict[str, Any]:
    """Every episode is judged, and every group whose outcomes differ is selected."""
    lake = str(folder / "lake")
    made = Trajectories(episodes=min(BATCH, episodes), shape=SHORT, made=1)
    batches = -(-episodes // min(BATCH, episodes))
    for number in range(batches):
        land(lake, made.batch(number))
    Writer(lake).append_arrow("problems", made.problems(batches))
    version = ModelVersion(
        name=MODEL, version=1, parent_version=None, training_set_id=None, mlflow_run_id="", weights_path="none",
        weights_digest="", stage="base", commit="", created_at=now(),
    )  # fmt: skip
    Writer(lake).append("model_versions", [version])
    Writer(lake).compact()
    cpu = time.process_time()
    began = time.perf_counter()
    labelled = label(lake, "search@2")
    label_s = time.perf_counter() - began
    asked = Selection(objective="grpo", rubrics=["search@2"], filter="grpo", policy_version=1, model_name=MODEL)
    began = time.perf_counter()
    chosen = select(lake, asked)
    return {
        "episodes": labelled.scored,
        "selected_episodes": chosen.episodes,
        "trained_tokens": chosen.tokens,
        "label_s": label_s,
        "select_s": time.perf_counter() - began,
        "cpu_s": time.process_time() - cpu,
        "peak_rss_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def day(shards: int, folder: Path) -> dict[str, Any]:
    """Shards of eight episodes, one after the other, with compaction every so often as `maintain` does it."""
    lake = str(folder / "lake")
    made = Trajectories(episodes=8, made=1)
    most = 0
    began = time.perf_counter()
    for number in range(shards):
        land(lake, made.batch(number, per_run=48))
        if number % 48 == 47 or number == shards - 1:
            most = max(most, _active(lake))
            Writer(lake).compact()
    return {
        "shards": shards,
        "files_without": 4 * shards,
        "files_before_compaction": most,
        "files_after": _active(lake),
        "seconds_per_shard": (time.perf_counter() - began) / shards,
    }


def _active(lake: str) -> int:
    """Files that a reader of the newest versions opens."""
    found = (store.opened(lake, name) for name in TABLES)
    return sum(len(delta.file_uris()) for delta in found if delta is not None)


def run() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["select", "day"])
    parser.add_argument("number", type=int)
    parser.add_argument("folder", type=Path)
    told = parser.parse_args()
    work = {"select": label_and_select, "day": day}[told.what]
    print(json.dumps(work(told.number, told.folder)))


if __name__ == "__main__":
    run()
