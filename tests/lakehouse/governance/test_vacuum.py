"""Vacuum removes what nobody needs, and nothing else."""

import os
import re
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lakehouse import connect
from lakehouse.governance.vacuum import vacuum
from lakehouse.records import TrainingSet, dumps, now
from lakehouse.write import Writer


def age(lake: str, days: float) -> None:
    """Make every file look so many days older. Checkpoints go: the commits tell the same, in text that can be made older."""
    for path in [*Path(lake).rglob("*.checkpoint.parquet"), *Path(lake).rglob("_last_checkpoint")]:
        path.unlink()
    for path in Path(lake).rglob("*"):
        if path.is_file():
            if path.suffix == ".json" and "_delta_log" in str(path):
                text = re.sub(
                    r'("(?:deletionTimestamp|timestamp|modificationTime)":)(\d{13})',
                    lambda found: f"{found[1]}{int(found[2]) - int(days * 86_400_000)}",
                    path.read_text(),
                )
                path.write_text(text)
            was = path.stat().st_mtime - days * 86_400
            os.utime(path, (was, was))


def pin(lake: str, versions: dict[str, int]) -> None:
    about = {
        "objective": "sft",
        "rubrics": ["r@1"],
        "filter": "sft",
        "policy_version": 1,
        "ledger": "{}",
        "digest": "d",
    }
    counts = {"n_rows": 0, "n_episodes": 0, "n_trained_tokens": 0, "created_at": now()}
    Writer(lake).append(
        "training_sets", [TrainingSet(training_set_id="ts", table_versions=dumps(versions), **about, **counts)]
    )


def calls(lake: str, version: int) -> int:
    with connect(lake, pinned={"calls": version}) as connection:
        return connection.execute("select count(*) from bronze.calls").fetchone()[0]


def test_old_versions_go_and_pinned_ones_stay(lake, make):
    for number in range(4):
        make.batch("p", number).land(lake)
    pin(lake, {"calls": 2})
    Writer(lake).compact()
    left = Path(lake, "calls", "part-of-a-killed-writer.parquet")
    left.write_bytes(b"PAR1")
    age(lake, 8)
    make.batch("p", 4).land(lake)
    planned = {one.table: one.files for one in vacuum(lake, dry_run=True)}
    assert left.exists()
    done = {one.table: one for one in vacuum(lake)}
    assert planned == {name: one.files for name, one in done.items()}
    assert (done["calls"].files, done["calls"].pinned) == (3, 1)  # two landings that no pin needs, and what was left
    assert done["calls"].bytes > 0
    assert not left.exists()
    assert calls(lake, 2) == 2
    with pytest.raises(Exception, match="parquet"):
        calls(lake, 4)
    with connect(lake) as connection:
        assert connection.execute("select count(*) from calls").fetchone() == (5,)
    config = DeltaTable(f"{lake}/calls").metadata().configuration
    assert config["delta.logRetentionDuration"] == "interval 36500 days"


def test_young_versions_stay(lake, make):
    for number in range(2):
        make.batch("p", number).land(lake)
    Writer(lake).compact()
    assert {one.files for one in vacuum(lake)} == {0}
    assert calls(lake, 1) == 1


def test_less_than_a_day_is_refused(lake):
    with pytest.raises(ValueError, match="at least"):
        vacuum(lake, kept_days=0)
