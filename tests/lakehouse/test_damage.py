"""A lake that is damaged, or where something else lies: every door names the file, and none blames the SQL that it was given."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lakehouse.governance import checks
from lakehouse.label import label
from lakehouse.query import QueryError, Unreadable, connect, query
from lakehouse.rubrics.judging import SelectionError
from lakehouse.selection import filters
from lakehouse.store import BrokenTable, ForeignTable, NoFolder
from lakehouse.write import Writer

INSIDE = slice(40, 300)  # of a data file: its first page


@pytest.fixture
def landed(lake, make):
    Writer(lake).put_problems([make.problem()])
    make.group([True, False]).land(lake)
    return lake


def data_file(lake, table):
    return next(Path(lake, table).rglob("*.parquet"))


@pytest.mark.parametrize("table", ["episodes", "evidence"])
def test_labelling_over_a_file_that_is_cut_off_names_it(landed, table):
    path = data_file(landed, table)
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(Unreadable, match=rf"{path.name}(?s:.*)`lakeloop checks --whole` says which"):
        label(landed, "search@2")


def test_pages_that_are_damaged_are_found_by_reading_files_whole(landed, make):
    make.group([True] * 4, problem_id="q").land(landed)
    path = data_file(landed, "calls")
    content = bytearray(path.read_bytes())
    content[INSIDE] = b"\xff" * (INSIDE.stop - INSIDE.start)
    path.write_bytes(content)
    with pytest.raises(Unreadable, match="damaged or gone: `lakeloop checks --whole` says which"):
        query("from calls", landed)
    with pytest.raises(BrokenTable, match=path.name):
        Writer(landed).compact()
    assert checks.run(landed)[0].rows == 0  # its footer is as it was
    found = checks.run(landed, whole=True)[0]
    assert (found.failed, found.rows) == (True, 1)
    assert path.name in found.about


def test_a_users_filter_is_not_blamed_for_a_damaged_file(landed, tmp_path, monkeypatch):
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path / "home"))
    folder = tmp_path / "home" / "filters"
    folder.mkdir(parents=True)
    (folder / "busy.sql").write_text(
        "-- keeps: what acted\nselect episode_id, 'idle' as reason from before anti join actions using (episode_id)"
    )
    path = data_file(landed, "actions")
    path.write_bytes(path.read_bytes()[:50])
    with connect(landed) as connection, pytest.raises(Unreadable, match=path.name):
        filters.apply(connection, filters.chosen("busy"), {"rubrics": ["search@2"]})


@pytest.mark.parametrize(
    ("theirs", "cause"),
    [
        ({"a": [1]}, "it has no column 'episode_id'"),
        ({"episode_id": [1]}, "its column 'episode_id' is BIGINT, not VARCHAR"),
    ],
)
def test_a_foreign_table_is_not_read_as_an_empty_one(lake, theirs, cause):
    write_deltalake(f"{lake}/evidence", pa.table(theirs))
    with pytest.raises(ForeignTable, match=cause):
        query("from evidence", lake)


def test_a_file_where_a_folder_should_be_is_told_by_readers_and_writers(lake, make, tmp_path):
    make.batch().land(lake)
    Path(lake, "calls").rename(tmp_path / "elsewhere")
    Path(lake, "calls").touch()
    for attempt in (
        lambda: query("from calls", lake),
        lambda: make.batch("q").land(lake),
        lambda: query("select 1", f"{lake}/calls"),
    ):
        with pytest.raises(NoFolder, match="calls is a file, not a folder: move it away"):
            attempt()


def test_what_closes_our_bracket_is_no_condition(landed):
    with pytest.raises(SelectionError, match="not a condition over the columns"):
        label(landed, "search@2", where="true) or (true")


@pytest.mark.parametrize("sql", ["", ";", "-- nothing", "create temp table mine as select 1"])
def test_sql_without_rows_is_told(lake, sql):
    with pytest.raises(QueryError, match="gives no rows: ask with SELECT"):
        query(sql, lake)


def test_a_connection_that_was_asked_nothing_has_no_rows(lake):
    with connect(lake) as connection, pytest.raises(QueryError, match="gives no rows: ask with SELECT"):
        connection.execute("-- nothing").pl()
