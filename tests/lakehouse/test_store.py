"""What lies at a table's place: older, newer, foreign, damaged. The error names the cause and the remedy."""

import json
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from lakehouse import clustering, layout, store
from lakehouse.query import QueryError, query
from lakehouse.records import Call
from lakehouse.schema import SCHEMA_VERSION, TABLES
from lakehouse.store import BrokenTable, ForeignTable, NewerLake
from lakehouse.write import Writer, to_arrow

# Columns of the first release: what came later is optional, see `schema.py`.
FIRST = {name: [f for f in table.arrow if not f.nullable or f.name in ("logprobs", "parent_call_id", "fork_reason",
         "finish_reason", "error", "model_version", "call_id", "outcome", "reward")]
         for name, table in TABLES.items() if name in ("episodes", "calls", "actions", "evidence", "problems")}  # fmt: skip


def data_file(lake: str, table: str = "calls") -> Path:
    return next(Path(lake, table).rglob("*.parquet"))


@pytest.fixture
def older(lake, make):
    """A lake as the first release wrote it: without the later columns, and without a schema version."""
    batch = make.batch("old")
    rows = {"episodes": batch.episodes, "calls": batch.calls, "actions": batch.actions, "evidence": batch.evidence}
    rows["problems"] = [make.problem("old")]
    for name, records in rows.items():
        schema = pa.schema(FIRST[name])
        table = TABLES[name]
        DeltaTable.create(
            f"{lake}/{name}", schema, name=name, partition_by=list(table.partitioned_before or table.partition_by)
        )
        write_deltalake(f"{lake}/{name}", to_arrow(name, records).select(schema.names).cast(schema), mode="append")
    return lake


def test_a_lake_of_an_older_release_is_read_with_nulls_and_widened_by_the_next_write(older, make):
    later = {f.name for f in TABLES["calls"].arrow} - {f.name for f in FIRST["calls"]}
    assert "redacted" in later
    assert query("select redacted from calls", older)["redacted"].to_list() == [None]
    assert query("select subject, problem_edition from episodes", older).row(0) == (None, None)
    before = store.opened(older, "calls")
    assert store.schema_version(before) == 1
    assert not later & {field.name for field in before.schema().fields}

    (make.batch("new") + make.batch("old")).land(older)  # the old episode is known: it does not land again
    after = store.opened(older, "calls")
    assert later <= {field.name for field in after.schema().fields}
    assert store.schema_version(after) == SCHEMA_VERSION
    rows = query("from calls order by episode_id", older).to_dicts()
    assert len(rows) == 2
    assert [Call(**row).completion_token_ids for row in rows] == [[4, 5], [4, 5]]
    Writer(older).put_problems([make.problem("old")])
    assert query("select count(*) as n from bronze.problems", older)["n"][0] == 2  # the old row has no edition
    Writer(older).compact()
    assert query("from calls order by episode_id", older).to_dicts() == rows


def test_every_column_that_came_later_is_optional():
    """What a first release's table lacks must be nullable, or it could not be widened."""
    for name, fields in FIRST.items():
        later = {f.name for f in TABLES[name].arrow} - {f.name for f in fields}
        assert all(TABLES[name].arrow.field(column).nullable for column in later)


def test_a_lake_of_a_later_release_is_read_but_not_written(lake, make):
    make.batch().land(lake)
    store.opened(lake, "calls").alter.set_table_properties({store.VERSION_KEY: "99"}, raise_if_not_exists=False)
    assert query("select count(*) as n from calls", lake)["n"][0] == 1
    with pytest.raises(NewerLake, match=r"schema version 99.*reading works, writing needs that release"):
        make.batch("other").land(lake)


def test_a_foreign_table_is_not_touched(lake, make):
    write_deltalake(f"{lake}/calls", pa.table({"a": [1]}), name="theirs")
    with pytest.raises(ForeignTable, match=r"is not Lakeloop's 'calls': it is named 'theirs'\. Move it away, or set"):
        make.batch().land(lake)
    theirs = DeltaTable(f"{lake}/calls")
    assert (theirs.version(), [f.name for f in theirs.schema().fields]) == (0, ["a"])
    assert not Path(lake, "episodes", "_delta_log", "00000000000000000001.json").exists()


def test_a_column_of_another_type_is_named(lake, make):
    schema = TABLES["actions"].arrow
    where = schema.get_field_index("action_index")
    DeltaTable.create(f"{lake}/actions", schema.set(where, pa.field("action_index", pa.string())), name="actions")
    with pytest.raises(ForeignTable, match="its column 'action_index' is"):
        make.batch().land(lake)


def test_a_log_that_is_cut_off_is_told_with_its_place(lake, make):
    make.batch().land(lake)
    log = sorted(Path(lake, "calls", "_delta_log").glob("*.json"))[0]
    log.write_bytes(log.read_bytes()[:40])
    with pytest.raises(BrokenTable, match=r"table calls at .*calls cannot be read: (?s:.*)Restore the file"):
        make.batch("other").land(lake)


@pytest.mark.parametrize("damage", ["cut off", "gone"])
def test_a_damaged_data_file_is_named_when_it_is_read(lake, make, damage):
    make.batch().land(lake)
    path = data_file(lake)
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(BrokenTable, match=path.name):
        store.read(lake, store.opened(lake, "calls"), ["episode_id"])
    with pytest.raises(QueryError, match=path.name):
        query("from calls", lake)


def test_a_half_written_file_that_no_commit_names_is_not_read(lake, make):
    make.batch().land(lake)
    (Path(lake, "calls") / "part-killed.zstd.parquet").write_bytes(b"PAR1 and no more")
    make.batch("other").land(lake)
    Writer(lake).compact()
    assert query("select count(*) as n from calls", lake)["n"][0] == 2


def test_deltas_log_holds_no_content(lake, make):
    call = make.call([1, 2], [3, 4], request_messages='[{"content": "a needle"}]')
    make.batch(calls=[call]).land(lake)
    Writer(lake).compact()
    for log in Path(lake, "calls", "_delta_log").glob("*.json"):
        assert "needle" not in log.read_text()
    stats = [json.loads(json.loads(line)["add"]["stats"]) for line in log.read_text().splitlines() if '"add"' in line]
    assert all("episode_id" in one["minValues"] for one in stats)


def test_rows_are_read_from_the_files_that_may_hold_them(lake, make, monkeypatch):
    make.batch("p", run="one").land(lake)
    there = data_file(lake, "episodes")
    make.batch("p", run="two").land(lake)
    next(path for path in Path(lake, "episodes").glob("*.parquet") if path != there).unlink()
    delta = store.opened(lake, "episodes")
    rows = store.read(lake, delta, ["episode_id", "run_id"], [("run_id", "in", ["one"])])
    assert rows["run_id"].to_pylist() == ["one"]
    with pytest.raises(BrokenTable):
        store.read(lake, delta, ["episode_id"])


def test_of_a_large_file_only_the_row_groups_are_read_that_may_hold_such_rows(lake, make, monkeypatch):
    monkeypatch.setattr(layout, "rows_per_group", lambda table, rows=None: 4)
    for shard in range(2):
        make.group([True] * 4, problem_id=f"p{shard}").land(lake)
    clustering.cluster(lake, "episodes")
    path = data_file_of_now(lake, "episodes")
    groups = pq.ParquetFile(path).metadata
    assert groups.num_row_groups == 2
    delta = store.opened(lake, "episodes")
    names = store.read(lake, delta, ["episode_id"])["episode_id"].to_pylist()
    last = groups.row_group(1).column(0)  # the key
    content = bytearray(path.read_bytes())
    content[last.data_page_offset : last.data_page_offset + 8] = b"\xff" * 8
    path.write_bytes(content)
    assert (
        store.read(lake, delta, ["episode_id"], [("episode_id", "in", names[:2])])["episode_id"].to_pylist()
        == names[:2]
    )
    with pytest.raises(BrokenTable, match=path.name):
        store.read(lake, delta, ["episode_id"], [("episode_id", "in", names[-1:])])


def test_the_newest_version_is_told_by_the_logs_names_from_a_checkpoint_on(lake, make):
    log = Path(lake, "episodes", "_delta_log")
    assert store.newest(log) is None
    for sample in range(3):
        make.batch(sample=sample).land(lake)
    assert store.newest(log) == store.opened(lake, "episodes").version() == 3
    Writer(lake).compact()
    make.batch(sample=3).land(lake)
    assert store.newest(log) == store.opened(lake, "episodes").version()
    assert store.newest(log, 2) == store.newest(log)
    (log / "_last_checkpoint").write_text("{cut off")
    assert store.newest(log) == store.opened(lake, "episodes").version()


def data_file_of_now(lake: str, table: str) -> Path:
    (path,) = store.opened(lake, table).file_uris()
    return Path(path.removeprefix("file://"))


def test_a_log_whose_file_is_being_replaced_is_looked_at_again(lake, make):
    make.batch("one").land(lake)
    Writer(lake).compact()  # leaves a checkpoint, which an erasure would put other content into
    (checkpoint,) = Path(lake, "episodes", "_delta_log").glob("*.checkpoint.parquet")
    whole = checkpoint.read_bytes()

    for read in (lambda: store.opened(lake, "episodes").version(), lambda: len(query("from episodes", lake))):
        checkpoint.write_bytes(whole[:-9])
        mended = threading.Timer(store.BETWEEN_LOOKS_S / 2, lambda: checkpoint.write_bytes(whole))
        mended.start()
        assert read() > 0
        mended.join()

    checkpoint.write_bytes(whole[:-9])
    with pytest.raises(BrokenTable, match="Restore the file"):
        store.opened(lake, "episodes")
