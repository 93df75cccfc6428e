"""A connection opens what a query names and nothing else; it reads what it was pinned to."""

import threading
from pathlib import Path

import polars as pl
import pytest

import lakehouse
from lakehouse import store
from lakehouse.query import NotAllowed, QueryError, UnknownPin, UnknownRole, query
from lakehouse.query.snapshots import Snapshot
from lakehouse.schema import TABLES
from lakehouse.write import Writer


def damaged(lake, table):
    """Make every data file of a table unreadable."""
    for path in Path(lake, table).rglob("*.parquet"):
        path.write_bytes(b"no parquet")
    return lake


def test_a_table_is_opened_when_a_query_names_it(lake, make):
    make.batch().land(lake)
    for log in Path(lake, "calls", "_delta_log").iterdir():
        log.write_text("no log")
    with lakehouse.connect(lake) as connection:
        assert connection.sql("from episodes").pl().height == 1
        with pytest.raises(QueryError, match=r"table 'calls' of .* cannot be read: .*`lakeloop checks`"):
            connection.sql("from tokens")
        with pytest.raises(QueryError, match="table 'calls'"):  # and not silently empty the second time
            connection.sql("from calls")
        assert connection.sql("from evidence").pl().height == 1


def test_a_damaged_file_is_told_with_its_name_and_the_remedy(lake, make):
    make.batch().land(lake)
    with pytest.raises(QueryError, match=r"(?s)calls/.*parquet.*`lakeloop checks --whole`"):
        query("from tokens", damaged(lake, "calls"))


def test_a_name_that_is_not_there_is_told_with_the_remedy(lake):
    with pytest.raises(QueryError, match=r"(?s)episode.*`lakeloop tables`"):
        query("from episode", lake)


def test_everything_there_is_can_be_listed(lake, make):
    make.batch().land(lake)
    listed = query("select schema || '.' || name as name from (show all tables)", lake)["name"].to_list()
    assert {f"main.{name}" for name in TABLES} | {f"bronze.{name}" for name in TABLES} <= set(listed)
    assert "main.tokens" in listed


def test_a_new_row_is_there_at_the_next_query(lake, make):
    make.batch(sample=0).land(lake)
    with lakehouse.connect(lake) as connection:
        assert connection.sql("from episodes").pl().height == 1
        make.batch(sample=1).land(lake)
        assert connection.sql("from episodes").pl().height == 2


def test_the_log_is_read_again_only_when_the_table_changed(lake, make, monkeypatch):
    make.batch().land(lake)
    attached = []
    attach = Snapshot._attach
    monkeypatch.setattr(Snapshot, "_attach", lambda one: (attached.append(one.relation), attach(one)))
    with lakehouse.connect(lake) as connection:
        for _ in range(3):
            assert connection.sql("from bronze.episodes").pl().height == 1
        assert len(attached) == 1
        make.batch("run-2").land(lake)
        assert connection.sql("from bronze.episodes").pl().height == 2
        Writer(lake).compact()
        assert connection.sql("from bronze.episodes").pl().height == 2
        assert len(attached) == 3


def test_a_table_that_is_written_meanwhile_is_there_at_the_next_query(lake, make):
    with lakehouse.connect(lake) as connection:
        assert connection.sql("from episodes").pl().height == 0
        make.batch().land(lake)
        assert connection.sql("from episodes").pl().height == 1


def test_what_is_held_open_has_no_name_in_sql_and_ends_with_the_connection(lake, make):
    make.batch().land(lake)
    databases = "select database_name from duckdb_databases() where database_name like '%/%'"
    with lakehouse.connect(lake, role="analyst") as connection:
        connection.sql("from calls").pl()
        held = [name for (name,) in connection.sql(databases).fetchall()]
        assert any(name.endswith("/calls") for name in held)
        for name in held:
            for sql in (f'from "{name}"."{name}"', f'from "{name}".main."{name}"'):
                with pytest.raises(NotAllowed):
                    connection.sql(sql)
    with lakehouse.connect(lake) as other:
        assert not {name for (name,) in other.sql(databases).fetchall()} & set(held)


def test_results_come_as_rows_polars_arrow_and_pandas(lake, make):
    make.batch().land(lake)
    with lakehouse.connect(lake) as connection:
        sql = "select n_calls from episodes where run_id = $1"
        for run in (connection.sql, connection.execute):
            assert run(sql, ["r"]).fetchall() == [(1,)]
            assert run(sql, ["r"]).pl().to_dicts() == [{"n_calls": 1}]
            assert run(sql, ["r"]).to_arrow_table().to_pylist() == [{"n_calls": 1}]
            assert run(sql, ["r"]).df().to_dict("list") == {"n_calls": [1]}


def test_data_of_ones_own_has_a_name_in_sql(lake, make):
    make.batch().land(lake)
    with lakehouse.connect(lake) as connection:
        connection.register("mine", pl.DataFrame({"run_id": ["r"]}))
        assert connection.sql("from episodes semi join mine using (run_id)").pl().height == 1
        with pytest.raises(NotAllowed, match="give the data another name"):
            connection.register("episodes", pl.DataFrame({"a": [1]}))


def test_a_python_variable_is_no_table(lake):
    mine = pl.DataFrame({"a": [1]})
    with pytest.raises(QueryError, match="mine does not exist"):
        query("from mine", lake)
    assert mine.height


def test_connections_share_no_temporary_tables_and_variables(lake):
    with lakehouse.connect(lake) as one, lakehouse.connect(lake) as two:
        one.execute("create temp table mine as select 1; set variable a = 1")
        with pytest.raises(QueryError, match="does not exist"):
            two.sql("from mine")
        assert two.execute("select getvariable('a')").fetchone() == (None,)


def test_connections_in_threads_do_not_meet(lake, make):
    make.batch().land(lake)
    found = []
    threads = [threading.Thread(target=lambda: found.append(query("from episodes", lake).height)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [1] * 4


def test_a_training_set_pins_what_it_was_selected_from(lake, make):
    from lakehouse.records import TrainingSet

    make.batch(sample=0).land(lake)
    pinned = store.versions(lake)
    make.batch(sample=1).land(lake)
    record = TrainingSet(
        training_set_id="ts-1", objective="grpo", rubrics=["search@2"], filter="grpo", policy_version=0, n_rows=0,
        table_versions=f'{{"episodes": {pinned["episodes"]}, "calls": {pinned["calls"]}}}', n_episodes=0,
        n_trained_tokens=0, ledger="{}", digest="d", created_at=make.problem().created_at,
    )  # fmt: skip
    Writer(lake).append("training_sets", [record])
    with lakehouse.connect(lake, training_set="ts-1") as connection:
        assert connection.sql("from episodes").pl().height == 1
        assert connection.sql("from bronze.evidence").pl().height == 2  # not an input of the set
    with lakehouse.connect(lake, training_set="ts-1", pinned={"calls": None}) as connection:
        assert connection.sql("from tokens").pl().height == 0
    with pytest.raises(UnknownPin, match="no training set 'ts-2'"):
        lakehouse.connect(lake, training_set="ts-2")


@pytest.mark.parametrize("version", [-1, 1.5, "1", True])
def test_a_pin_is_a_whole_number(lake, version):
    with pytest.raises(UnknownPin, match="a Delta version is a whole number"):
        lakehouse.connect(lake, pinned={"episodes": version})


def test_a_pin_of_no_version_is_told_by_table(lake, make):
    make.batch().land(lake)
    with (
        lakehouse.connect(lake, pinned={"episodes": 99}) as connection,
        pytest.raises(UnknownPin, match="table 'episodes' has no version 99"),
    ):
        connection.sql("from episodes")


@pytest.mark.parametrize("name", ["episode", "../episodes", "episodes/../calls", "/etc"])
def test_a_pin_of_no_table_is_refused(lake, name):
    with pytest.raises(KeyError, match="no table"):
        lakehouse.connect(lake, pinned={name: 1})


def test_an_analyst_sees_no_content_in_any_view(lake, make):
    make.batch().land(lake)
    with lakehouse.connect(lake, role="analyst") as connection:
        found = connection.sql(
            "select call_id, weight_versions, prompt_token_ids, response_message from calls"
        ).fetchall()
        assert found == [("c0", [1, 1], None, None)]
        assert connection.sql("select count(token_id) from tokens").fetchone() == (0,)
    with pytest.raises(UnknownRole, match="no role 'boss'; there are "):
        lakehouse.connect(lake, role="boss")
