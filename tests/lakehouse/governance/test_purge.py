"""Rows that go are gone from every version; versions that never held them stay."""

import os
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lakehouse import connect
from lakehouse.governance.purge import purge, rows_with
from lakehouse.write import Writer


def everything(lake: str, table: str) -> bytes:
    """Every byte of a table's folder."""
    return b"\n".join(path.read_bytes() for path in sorted(Path(lake, table).rglob("*")) if path.is_file())


def ids(lake: str, table: str, version: int | None = None) -> set[str]:
    pinned = {} if version is None else {table: version}
    with connect(lake, pinned=pinned) as connection:
        return {name for (name,) in connection.execute(f"select distinct episode_id from bronze.{table}").fetchall()}


@pytest.fixture
def aged(lake, make) -> tuple[str, list[str]]:
    """A lake with compactions, old versions and a checkpoint; and the ids of its episodes in the order they landed."""
    for number in range(4):
        make.batch("p", number).land(lake)
    Writer(lake).compact()
    for table in ("calls", "episodes"):
        DeltaTable(f"{lake}/{table}").create_checkpoint()
    make.batch("p", 4).land(lake)
    return lake, [make.batch("p", number).episodes[0].episode_id for number in range(5)]


@pytest.mark.parametrize("table", ["calls", "episodes"])
def test_no_byte_of_the_id_is_left_in_data_log_or_checkpoint(aged, table):
    lake, (first, gone, *rest) = aged
    assert gone.encode() in everything(lake, table)
    done = purge(lake, table, rows_with(table, "episode_id", [gone]))
    assert (done.rows, done.files) == (
        1,
        2,
    )  # the landing's own file and the compacted one; 1 row of the newest version
    assert gone.encode() not in everything(lake, table)
    assert ids(lake, table) == {first, *rest}


def test_versions_without_the_rows_are_read_as_before_and_the_others_are_named(aged):
    lake, (first, gone, *_) = aged
    told = []
    before = DeltaTable(f"{lake}/calls").version()
    done = purge(lake, "calls", rows_with("calls", "episode_id", [gone]), losing=told.extend)
    assert ids(lake, "calls", version=1) == {first}  # version 0 made the table, every landing is one more
    assert told == done.lost == [(2, before)]


def test_repeating_it_changes_nothing(aged):
    lake, (_, gone, *_) = aged
    purge(lake, "calls", rows_with("calls", "episode_id", [gone]))
    version = DeltaTable(f"{lake}/calls").version()
    again = purge(lake, "calls", rows_with("calls", "episode_id", [gone]))
    assert (again.rows, again.files, again.lost) == (0, 0, [])
    assert DeltaTable(f"{lake}/calls").version() == version


def test_a_half_written_file_goes_once_nobody_can_be_writing_it(aged):
    lake, (_, gone, *_) = aged
    left = Path(lake, "calls", "part-left.zstd.parquet")
    left.write_bytes(b"PAR1" + gone.encode())
    purge(lake, "calls", rows_with("calls", "episode_id", [gone]))
    assert left.exists()  # clustering writes beside the lock
    os.utime(left, (0, 0))
    purge(lake, "calls", rows_with("calls", "episode_id", [gone]))
    assert not left.exists()


def test_many_rows_go_in_one_commit(lake, make):
    batches = [make.batch("p", number) for number in range(60)]
    total = sum(batches[1:], batches[0])
    total.land(lake)
    names = [episode.episode_id for episode in total.episodes]
    before = DeltaTable(f"{lake}/calls").version()
    assert purge(lake, "calls", rows_with("calls", "episode_id", names[:59])).rows == 59
    assert DeltaTable(f"{lake}/calls").version() == before + 1
    assert ids(lake, "calls") == {names[59]}
