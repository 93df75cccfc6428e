"""SQL that does more than read the lake is refused before it runs, whichever way it is written."""

from pathlib import Path

import pytest

import lakehouse
from lakehouse.query import NotAllowed, QueryError
from lakehouse.query.guard import admitted
from lakehouse.records import AuditEntry, now
from lakehouse.write import Writer

WRITES = [
    "copy (select 1) to '{out}'",
    "copy episodes to '{lake}/stolen.parquet'",
    "explain analyze copy (select 1) to '{out}'",
    "explain (analyze, format json) copy (select 1) to '{out}'",
    "prepare p as copy (select 1) to '{out}'",
    "execute p",
    "export database '{out}'",
    "import database '{out}'",
    "attach '{out}' as other",
    "attach '{lake}/audit' as episodes (type delta)",
    "detach memory",
    "insert into episodes values (1)",
    "update episodes set status = 'ok'",
    "delete from episodes",
    "truncate episodes",
    "merge into episodes using calls using (episode_id) when matched then delete",
    "create table kept as from episodes",
    "create view bronze.episodes as select 1",
    "create or replace view episodes as select 1",
    "create macro f(x) as x",
    "create temp macro f(x) as x",
    "create secret s (type s3, key_id 'a', secret 'b')",
    "drop view episodes",
    "alter view episodes rename to mine",
    "comment on view episodes is 'mine'",
    "install httpfs",
    "load httpfs",
    "load '{out}'",
    "set threads = 1",
    "set global lock_configuration = false",
    "reset threads",
    "use memory",
    "begin",
    "checkpoint",
    "vacuum",
    "call enable_logging()",
    "select 1; copy (select 1) to '{out}'",
    "-- harmless\ncopy (select 1) to '{out}'",
    "/* select */ copy (select 1) to '{out}'",
]
FILES = [
    "from '{out}'",
    "from '/etc/passwd'",
    'from "../lake/episodes/part.parquet"',
    "from 's3://bucket/x.parquet'",
    "from read_text('/etc/passwd')",
    "from read_text('{lake}/audit/_delta_log/*')",
    "from read_csv('http://127.0.0.1:1/x.csv')",
    "from parquet_metadata('{lake}/audit/*.parquet')",
    "from glob('/etc/*')",
    "from delta_scan('{lake}/audit')",
    "from sniff_csv('/etc/passwd')",
    "from query('select 1')",
    "from query_table('episodes')",
    "from enable_logging('QueryLog', storage = 'file', storage_path = '{out}')",
    "from checkpoint()",
    "from duckdb_secrets()",
    "from delta_set_transaction_version('{lake}/audit', 'a', 1)",
    "from json_execute_serialized_sql('x')",
    "with a as (select 1), b as (select * from read_text('/etc/passwd')) from b",
    "select (select content from read_text('/etc/passwd'))",
    "select * from episodes where episode_id in (select filename from read_blob('/etc/*'))",
    "from episodes union all from read_csv('/etc/passwd')",
    "create temp table stolen as from read_text('/etc/passwd')",
    "create temp view stolen as from read_text('/etc/passwd')",
    "set variable stolen = (select content from read_text('/etc/passwd'))",
    "explain from read_text('/etc/passwd')",
    "describe from '/etc/passwd'",
    "summarize '/etc/passwd'",
    "from other_lake.main.episodes",
    "pivot episodes on status",
]
READS = [
    "from episodes",
    "select 1; select 2;",
    "describe episodes",
    "summarize episodes",
    "show tables",
    "pragma table_info('episodes')",
    "explain from episodes",
    "explain analyze from episodes",
    "explain (select 1)",
    "with a as (from episodes) select count(*) from a, range(3), unnest([1, 2])",
    "from information_schema.tables",
    "from duckdb_columns()",
    "set variable run = 'it''s'; select getvariable('run')",
    "set variable run = (select max(run_id) from episodes)",
    "reset variable run",
    "create temp table mine as from episodes; from mine",
    "create or replace temporary view yours as select 1; from yours",
    "from episodes pivot (count(*) for status in ('ok', 'timeout'))",
    "from bronze.episodes semi join calls using (episode_id)",
    "select ';' as semicolon, '-- no comment' as text -- a comment",
]


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """One lake for all: nothing here may change it."""
    return written(tmp_path_factory.mktemp("home") / "lake")


def written(lake):
    entry = AuditEntry(entry_id="e", actor="a", action="x", object="o", detail="{}", noted_at=now())
    Writer(str(lake)).append("audit", [entry])
    return str(lake)


@pytest.mark.parametrize("sql", WRITES + FILES)
def test_what_is_more_than_reading_the_lake_is_refused(filled, tmp_path, sql):
    out = tmp_path / "out"
    before = sorted(Path(filled).rglob("*"))
    with lakehouse.connect(filled) as connection:
        for run in (connection.sql, connection.execute):
            with pytest.raises(NotAllowed, match=r"for this connection|only reads|no name of a table|no catalog"):
                run(sql.format(out=out, lake=filled))
        assert connection.sql("select count(*) from audit").fetchone() == (1,)
    assert not out.exists()
    assert sorted(Path(filled).rglob("*")) == before


@pytest.mark.parametrize("sql", READS)
def test_reading_is_allowed_in_all_its_forms(filled, sql):
    with lakehouse.connect(filled) as connection:
        connection.execute(sql)
        assert connection.sql("select count(*) from audit").fetchone() == (1,)  # it goes on reading the same lake


@pytest.mark.parametrize("sql", ["selec 1", "select from", "from episodes where", "explain selec"])
def test_what_is_no_sql_is_told_in_duckdbs_words(filled, sql):
    with lakehouse.connect(filled) as connection, pytest.raises(QueryError, match="syntax error"):
        connection.execute(sql)


def test_what_is_named_is_found_wherever_it_stands():
    sql = """
        with mine as (from Calls)
        select (select count(*) from radar.git_history), *
        from mine join bronze.episodes on true
        where exists (from "TOKENS")
    """
    assert admitted(sql).relations == {"main.mine", "main.calls", "radar.git_history", "bronze.episodes", "main.tokens"}
    assert not admitted(sql).everything


@pytest.mark.parametrize("path", ["/etc/hostname", "{other}/audit"])
def test_duckdb_itself_is_locked_to_the_lake(filled, tmp_path, path):
    """Should a way around the look at the SQL be found: the engine opens no other file."""
    from duckdb import PermissionException

    other = written(tmp_path / "other")
    function = "delta_scan" if "other" in path else "read_text"
    with lakehouse.connect(filled) as connection, pytest.raises(PermissionException, match="disabled by configuration"):
        connection._raw.execute(f"from {function}('{path.format(other=other)}')").fetchall()


@pytest.mark.parametrize("sql", ["set enable_external_access = true", "set lock_configuration = false", "load spatial"])
def test_the_lock_cannot_be_taken_off(filled, sql):
    from duckdb import Error

    with lakehouse.connect(filled) as connection, pytest.raises(Error, match=r"locked|disabled"):
        connection._raw.execute(sql)
