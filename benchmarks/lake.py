"""The lake's storage: landing, size, look-up, label and select over generated trajectories, against what others keep them in.

Each size is measured in a process of its own. `--quick` takes a minute or two; the whole, with a hundred million tokens, needs
6 GB of disk and about half an hour on two cores.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.report import arguments, say, tell
from lakehouse.home import home

ROOT = Path(__file__).resolve().parent.parent
MILLION = 1_000_000
SIZES = (1 * MILLION, 10 * MILLION, 100 * MILLION)
WITH_PEERS = 10 * MILLION  # JSON lines of more would need tens of gigabytes


def child(module: str, *given: object, folder: Path, flags: tuple[str, ...] = ()) -> dict[str, Any]:
    """The JSON that a part of the benchmark prints. Its folder is gone afterwards."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, given), str(folder), *flags]
    try:
        ended = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if ended.returncode != 0:
        raise RuntimeError(f"benchmarks.{module} {given} ended with exit status {ended.returncode}")
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def measured(*, quick: bool, folder: Path) -> dict[str, Any]:
    sizes = SIZES[:1] if quick else SIZES
    peers_at = sizes[0] if quick else WITH_PEERS
    by_size = {}
    for tokens in sizes:
        say(f"{tokens // MILLION} M tokens")
        flags = ("--peers",) if tokens == peers_at else ()
        by_size[tokens] = child("lake_run", tokens, folder=folder / str(tokens), flags=flags)
    say("label and select")
    episodes = 8192 if quick else 100_000
    chosen = child("lake_select", "select", episodes, folder=folder / "select")
    say("a day of shards")
    day = child("lake_select", "day", 24 if quick else 288, folder=folder / "day")
    largest, compared = by_size[sizes[-1]], by_size[peers_at]
    sqlite, jsonl = compared["sqlite"], compared["jsonl"]
    return {
        "landing_vs_parquet": largest["parquet_s"] / largest["land_s"],
        "bytes_per_token": largest["bytes_per_token"],
        "jsonl_size_ratio": jsonl["bytes"] / compared["calls_bytes"],
        "label_select_100k_s": (chosen["label_s"] + chosen["select_s"]) * 100_000 / chosen["episodes"],
        "label_select_100k_cpu_s": chosen["cpu_s"] * 100_000 / chosen["episodes"],
        "lookup_ms": largest["lookup_ms"],
        "lookup_cpu_ms": largest["lookup_cpu_ms"],
        "peak_rss_gib": max(one["peak_rss_gib"] for one in [*by_size.values(), chosen]),
        "scaling": {
            f"{tokens // MILLION}M": {key: one[key] for key in ("tokens", "land_s", "parquet_s", "compact_s", "scan_s")}
            | {key: one[key] for key in ("lookup_ms", "trajectory_ms", "landed_files", "files", "peak_rss_gib")}
            for tokens, one in by_size.items()
        },
        "label_select": chosen,
        "day": day,
        "peers": {
            "tokens": compared["tokens"],
            "lake": {"write_s": compared["land_s"], "bytes": compared["calls_bytes"]}
            | {key: compared[key] for key in ("lookup_ms", "scan_s")},
            "sqlite": sqlite,
            "jsonl": jsonl,
            "sqlite_size_ratio": sqlite["bytes"] / compared["calls_bytes"],
        },
    }


def main() -> None:
    quick = arguments(__doc__).quick
    home().cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home().cache, prefix="bench-lake-") as folder:
        tell(_rounded(measured(quick=quick, folder=Path(folder))))


def _rounded(found: Any) -> Any:
    if isinstance(found, dict):
        return {name: _rounded(value) for name, value in found.items()}
    return round(found, 3) if isinstance(found, float) else found


if __name__ == "__main__":
    main()
