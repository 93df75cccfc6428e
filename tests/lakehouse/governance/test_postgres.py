"""What an erasure does in a Postgres database, on a real server."""

import asyncio
import json
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import asyncpg
import pytest

from lakehouse.governance.postgres import Database, Unreachable, is_postgres
from lakehouse.governance.probes import Probes
from lakehouse.governance.scan import Scanned, Search

pytestmark = pytest.mark.optional  # where no Postgres is installed

TEXT = "the blue heron of Wexley crossing"
ID = "ep-0123456789abcdef01234567"
SEARCH = Search(Probes(names=[ID, "customer-1"], texts=[TEXT]))
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


def test_the_old_rows_are_not_left_in_the_tables_file(database, url):
    run(url, "insert into log (message) values ($1) returning id", TEXT)
    run(url, "delete from log")
    run(url, "insert into log (message) values ($1) returning id", f"again {TEXT}")
    database.blank(SEARCH, found(database))
    run(url, "checkpoint")
    (path,) = run(url, "select current_setting('data_directory') || '/' || pg_relation_filepath('log') as path")
    content = Path(path["path"]).read_bytes()
    assert b"again" in content and TEXT.encode() not in content


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
