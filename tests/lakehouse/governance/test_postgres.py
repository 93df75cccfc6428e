"""What an erasure does in a Postgres database, on a real server."""

import asyncio
import json
import shutil
import socket
import subprocess
import tempfile
import traceback
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import pytest

from lakehouse.governance import postgres
from lakehouse.governance.postgres import Database, Unreachable, is_postgres
from lakehouse.governance.probes import Probes
from lakehouse.governance.scan import Scanned, Search

pytestmark = pytest.mark.optional  # where no Postgres is installed

TEXT = "the blue heron of Wexley crossing"
ID = "ep-0123456789abcdef01234567"
UUID = "550e8400-e29b-41d4-a716-446655440000"
TOKENS = [50123, 50124, 50125, 50126, 50127]
SEARCH = Search(Probes(names=[ID, "customer-1", "4711", UUID], texts=[TEXT], tokens=[TOKENS]))
TABLES = """
    create schema other;
    create table log (id serial primary key, message text, told jsonb, raw bytea, tags text[], at timestamptz default now());
    create table other."Odd ""name" ("a column" varchar, twice varchar generated always as (lower("a column")) stored);
"""


@pytest.fixture(scope="module")
def url():
    """A server of this run alone. It does not run as root."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    if not programs:
        pytest.skip("no Postgres in /usr/lib/postgresql: apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    shutil.chown(folder, "postgres", "postgres")

    def ctl(*arguments):
        subprocess.run([programs[-1], "-D", folder / "data", *arguments], user="postgres", check=True, timeout=120, cwd=folder,
                       stdout=subprocess.DEVNULL)  # fmt: skip

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ctl("initdb", "-o", "--auth=trust --no-sync")
    ctl("start", "-w", "-l", folder / "log", "-o", f"-p {port} -c listen_addresses=127.0.0.1 -k {folder} -c fsync=off")
    yield f"postgresql+asyncpg://postgres@127.0.0.1:{port}/postgres"
    ctl("stop", "-m", "immediate")
    shutil.rmtree(folder)


@pytest.fixture
def database(url):
    run(url, "drop table if exists log; drop schema if exists other cascade;" + TABLES)
    return Database("Prefect", url)


def run(url, sql, *values):
    async def on_its_own():
        connection = await asyncpg.connect(url.replace("+asyncpg", ""), timeout=30)
        try:
            return await (
                connection.fetch(sql, *values) if values or sql.startswith("select") else connection.execute(sql)
            )
        finally:
            await connection.close()

    return asyncio.run(on_its_own())


@contextmanager
def held(url, sql):
    """A transaction of somebody else's, open meanwhile."""
    loop = asyncio.new_event_loop()
    connection = loop.run_until_complete(asyncpg.connect(url.replace("+asyncpg", ""), timeout=30))
    loop.run_until_complete(connection.execute(f"begin; {sql}"))
    try:
        yield
    finally:
        loop.run_until_complete(connection.close())
        loop.close()


def path(url, table):
    sql = "select current_setting('data_directory') || '/' || pg_relation_filepath($1::text::regclass) as path"
    return Path(run(url, sql, table)[0]["path"])


def content(url, table):
    """The bytes of the table's file."""
    run(url, "checkpoint")
    return path(url, table).read_bytes()


def found(database):
    scanned = Scanned()
    database.look(SEARCH, scanned)
    return scanned


def test_what_is_found_in_any_column_is_overwritten_and_all_else_stays(database, url):
    insert = "insert into log (message, told, raw, tags) values ($1, $2, $3, $4) returning id"
    run(
        url, "insert into log (message) select 'line ' || n from generate_series(1, 1200) as n"
    )  # more than are read at a time
    told = {"who": "customer-1", "and": "customer-10", "text": TEXT}
    run(url, insert, f"one {ID} two", json.dumps(told), TEXT.encode() + b"\xff\x00", ["a", "customer-1"])
    run(url, 'insert into other."Odd ""name" ("a column") values ($1) returning 1', TEXT)
    before = found(database)
    assert before.found == {
        "Prefect's database: public.log.message": ["id"],
        "Prefect's database: public.log.told": ["name", "text"],
        "Prefect's database: public.log.raw": ["text"],
        "Prefect's database: public.log.tags": ["name"],
        'Prefect\'s database: other."Odd ""name"."a column"': ["text"],
    }
    assert sorted(database.blank(SEARCH, before)) == sorted(before.found)
    assert found(database).found == {}
    assert run(url, "select count(*) as n from log where message like 'line %'")[0]["n"] == 1200
    (row,) = run(url, "select * from log where message not like 'line %'")
    assert row["message"] == f"one {'*' * len(ID)} two"
    assert json.loads(row["told"]) == {"who": "*" * 10, "and": "customer-10", "text": "*" * len(TEXT)}
    assert row["raw"] == b"*" * len(TEXT) + b"\xff\x00"
    assert row["tags"] == ["a", "*" * 10]


def test_what_the_server_changed_or_deleted_itself_is_not_left_in_the_tables_file(database, url):
    run(url, "insert into log (message) values ($1), ($2) returning id", TEXT, f"deleted {TEXT}")
    run(url, "update log set message = 'kept' where id = 1; delete from log where id > 1")
    assert TEXT.encode() in content(url, "log")
    scanned = found(database)
    assert scanned.found == {} and database.blank(SEARCH, scanned) == []
    assert b"kept" in content(url, "log") and TEXT.encode() not in content(url, "log")


def test_what_is_overwritten_is_not_left_in_the_tables_file(database, url):
    run(url, "insert into log (message) values ($1) returning id", f"again {TEXT}")
    database.blank(SEARCH, found(database))
    assert b"again" in content(url, "log") and TEXT.encode() not in content(url, "log")


def test_a_table_is_rewritten_again_only_where_something_is_overwritten_again(database, url):
    database.blank(SEARCH, found(database))
    file = path(url, "log")
    database.blank(SEARCH, found(database))
    assert path(url, "log") == file
    run(url, "insert into log (message) values ($1) returning id", TEXT)
    database.blank(SEARCH, found(database))
    assert path(url, "log") != file


def test_the_statistics_hold_nothing_of_it(database, url):
    run(url, "insert into log (message, tags) select $1, array[$1] from generate_series(1, 50) returning id", TEXT)
    run(url, "create statistics other.two on message, tags from log; analyze log")
    seen = (
        "select count(*) as n from pg_stats where most_common_vals::text || coalesce(most_common_elems::text, '') ~ $1"
    )
    assert run(url, seen, TEXT)[0]["n"] and TEXT.encode() in content(url, "pg_statistic")
    assert TEXT.encode() in content(url, "pg_statistic_ext_data")
    database.blank(SEARCH, found(database))
    assert run(url, seen, TEXT)[0]["n"] == 0 and run(url, seen, r"\*\*\*")[0]["n"]
    for name in ("log", "pg_statistic", "pg_statistic_ext_data"):
        assert TEXT.encode() not in content(url, name)


def test_an_erasure_that_could_not_rewrite_a_table_does_so_when_it_is_repeated(database, url, monkeypatch):
    monkeypatch.setattr(postgres, "PATIENCE_S", 1.0)
    run(url, "insert into log (message) values ($1) returning id", f"again {TEXT}")
    with (
        held(url, "lock table log in access share mode"),
        pytest.raises(Unreachable, match=r"Prefect's database: public\.log could .*: LockNotAvailableError\."),
    ):
        database.blank(SEARCH, found(database))
    assert TEXT.encode() in content(url, "log")
    repeated = Database("Prefect", url)
    scanned = found(repeated)
    assert scanned.found == {} and repeated.blank(SEARCH, scanned) == []
    assert b"again" in content(url, "log") and TEXT.encode() not in content(url, "log")


def test_old_rows_that_an_open_transaction_still_sees_end_the_erasure(database, url, monkeypatch):
    monkeypatch.setattr(postgres, "PATIENCE_S", 1.0)
    run(url, "insert into log (message) values ($1) returning id", TEXT)
    with (
        held(url, "set transaction isolation level repeatable read; select count(*) from pg_class"),
        pytest.raises(Unreachable, match="TimeoutError"),
    ):
        database.blank(SEARCH, found(database))
    database.blank(SEARCH, found(database))
    assert TEXT.encode() not in content(url, "log")


def test_a_type_that_takes_no_asterisks_is_overwritten_by_zeros(database, url):
    run(url, "create table other.typed (told jsonb, plain json, ids integer[], wide bigint[], who uuid, all_of uuid[])")
    told = {"a": 4711, "b": [4711, 47110, 4711.5], "\\n": f'x\\"\n{TEXT}', "ids": [1, *TOKENS, 2], "is": True}
    put = "insert into other.typed values ($1, $2, $3, $4, $5::text::uuid, array[$5::text::uuid]) returning 1"
    run(url, put, json.dumps(told), json.dumps(told), [1, *TOKENS], [4711, 5], UUID)
    before = found(database)
    assert len(before.found) == 6
    assert sorted(database.blank(SEARCH, before)) == sorted(before.found)
    assert found(database).found == {}
    (row,) = run(url, "select told, plain, ids, wide, who::text, all_of::text from other.typed")
    for kind in ("told", "plain"):
        held = json.loads(row[kind])
        assert set(held.pop("\\n")) == {"*"}
        assert held == {"a": 0, "b": [0, 47110, 0], "ids": [1, 0, 0, 0, 0, 0, 2], "is": True}
    assert row["ids"] == [1, 0, 0, 0, 0, 0] and row["wide"] == [0, 5]
    assert row["who"] == "00000000-0000-0000-0000-000000000000" and row["all_of"] == f"{{{row['who']}}}"


@pytest.mark.parametrize("when", ["", "deferrable initially deferred"])
def test_a_row_that_a_constraint_keeps_is_told_and_the_others_are_overwritten(database, url, when):
    run(url, "create table other.people (name text primary key, note text)")
    run(url, f"create table other.visits (of text references other.people (name) {when}, note text)")
    run(url, "insert into other.people values ('customer-1', 'kept'), ('somebody', $1) returning 1", f"one {ID}")
    run(url, "insert into other.visits values ('customer-1', null), ('somebody', $1) returning 1", TEXT)
    run(url, "insert into log (message) values ($1) returning id", TEXT)
    before = found(database)
    assert sorted(database.blank(SEARCH, before)) == [
        "Prefect's database: other.people.note",
        "Prefect's database: other.visits.note",
        "Prefect's database: public.log.message",
    ]
    left = found(database)
    assert left.found == {
        "Prefect's database: other.people.name": ["name"],
        "Prefect's database: other.visits.of": ["name"],
    }
    assert database.blank(SEARCH, left) == []
    why = ["a row is not taken overwritten (ForeignKeyViolationError)", "name"]
    assert list(left.found.values()) == [why, why]


def test_rows_that_follow_one_another_by_a_foreign_key_are_gone_from_both_files(database, url):
    run(url, "create table other.people (name text primary key)")
    run(url, "create table log_of (name text references other.people on update cascade)")
    try:
        run(url, "insert into other.people values ($1) returning 1", TEXT)
        run(url, "insert into log_of values ($1) returning 1", TEXT)
        database.blank(SEARCH, found(database))
        assert found(database).found == {}
        for name in ("other.people", "log_of"):
            assert TEXT.encode() not in content(url, name) and b"****" in content(url, name)
    finally:
        run(url, "drop table log_of")


def test_what_postgres_says_of_the_values_is_not_told(database, url):
    run(url, "create function other.no() returns trigger language plpgsql as $$ begin raise '%', old.message; end $$")
    run(url, "create trigger no before update on log for each row execute function other.no()")
    run(url, "insert into log (message) values ($1) returning id", TEXT)
    with pytest.raises(Unreachable) as told:
        database.blank(SEARCH, found(database))
    shown = "".join(traceback.format_exception(told.value))
    assert TEXT not in shown and "Prefect's database: public.log could" in shown and "RaiseError" in shown


def test_a_table_that_is_not_the_roles_own_is_told(database, url):
    run(
        url,
        "create role guest login; grant usage on schema other to guest; grant all on all tables in schema public to guest;",
    )
    try:
        guest = Database("Prefect", url.replace("postgres@", "guest@"))
        with pytest.raises(Unreachable, match=r'other\."Odd .*InsufficientPrivilegeError'):
            found(guest)
        run(url, "grant all on all tables in schema other to guest")
        with pytest.raises(Unreachable, match=r'other\."Odd .*PermissionError'):
            guest.blank(SEARCH, found(guest))
        run(url, "alter database postgres owner to guest")
        run(url, "insert into log (message) select $1 from generate_series(1, 50) returning id", TEXT)
        run(url, "analyze log")
        guest.blank(SEARCH, found(guest))
        assert TEXT.encode() not in content(url, "log") and TEXT.encode() not in content(url, "pg_statistic")
    finally:
        run(url, "alter database postgres owner to postgres; drop owned by guest; drop role guest")


@pytest.mark.parametrize(
    "url", ["postgresql://me:hunter2@127.0.0.1:port/mlflow", "postgresql://me:hunter2@[::1/mlflow"]
)
def test_a_malformed_url_is_not_told(url):
    with pytest.raises(Unreachable, match="LAKELOOP_MLFLOW_DATABASE") as told:
        Database("MLflow", url).look(SEARCH, Scanned())
    assert "hunter2" not in "".join(traceback.format_exception(told.value))


def test_a_database_that_does_not_answer_ends_the_erasure_without_telling_its_password():
    with pytest.raises(Unreachable, match="LAKELOOP_MLFLOW_DATABASE") as told:
        Database("MLflow", "postgresql://me:hunter2@127.0.0.1:1/mlflow").look(SEARCH, Scanned())
    assert "hunter2" not in str(told.value) and told.value.__cause__ is None


@pytest.mark.parametrize(
    ("url", "ours"),
    [
        ("postgresql+asyncpg://a@b/c", True),
        ("postgres://b/c", True),
        ("mysql://b/c", False),
        ("sqlite:///postgresql://x", False),
    ],
)
def test_a_postgres_is_known_by_its_url(url, ours):
    assert is_postgres(url) is ours
