"""A lake in an object store, against an S3 server on this machine."""

import gzip
import io
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import PyFileSystem

from lakehouse import commits, store
from lakehouse.governance import erase, plan
from lakehouse.governance.files import Files
from lakehouse.governance.purge import purge, rows_with
from lakehouse.objects import UnsupportedStore, options, secret
from lakehouse.query import connect, query
from lakehouse.write import Writer

DEADLINE_S = 120
SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of an S3 server."""
    log = tmp_path_factory.mktemp("s3") / "server.log"
    with log.open("w") as said:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True
        )
    try:
        line = process.stdout.readline()
        assert line.strip().isdigit(), f"the S3 server did not start: {log.read_text()[-2000:]}"
        yield f"http://127.0.0.1:{line.strip()}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def bucket(server, monkeypatch, request):
    """An empty bucket of its own, by URL."""
    for name, value in {
        "AWS_ENDPOINT_URL": server,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    name = f"lake{abs(hash(request.node.name)) % 10**9}"
    assert httpx.put(f"{server}/{name}", trust_env=False, timeout=DEADLINE_S).status_code == 200
    return f"s3://{name}/some/prefix"


def test_a_lake_in_a_bucket_is_written_once_and_read_as_a_folder_is(bucket, make):
    batch = make.group([True, False])
    assert batch.land(bucket).episodes == 2
    assert batch.land(bucket).skipped == [one.episode_id for one in batch.episodes]
    make.batch(sample=2).land(bucket)
    assert query("select count(*) as n, count(distinct episode_id) as ids from calls", bucket).row(0) == (3, 3)
    before = store.versions(bucket)
    Writer(bucket).compact()
    assert len(store.opened(bucket, "calls").file_uris()) == 1
    assert query("select count(*) as n from tokens", bucket)["n"][0] == 6
    with connect(bucket, pinned=before) as pinned:
        assert pinned.execute("select count(*) from bronze.calls").fetchone() == (3,)


def test_a_connection_sees_a_table_that_was_first_written_after_it_looked(bucket, make):
    with connect(bucket) as early:
        assert early.execute("select count(*) from episodes").fetchone() == (0,)
        make.batch().land(bucket)
        assert early.execute("select count(*) from episodes").fetchone() == (1,)


def test_of_two_writers_of_one_version_in_a_bucket_one_looks_again(bucket, make, monkeypatch):
    make.batch("other").land(bucket)
    batch = make.batch()
    real, raced = commits.write, []

    def overtaken(delta, table, data, transaction):
        if table == "episodes" and not raced:
            raced.append(True)
            batch.land(bucket)
        real(delta, table, data, transaction)

    monkeypatch.setattr(commits, "write", overtaken)
    assert batch.land(bucket).episodes == 0
    assert query("select count(*) as n from bronze.episodes", bucket)["n"][0] == 2


def test_writers_at_once_in_a_bucket_lose_nothing_and_write_nothing_twice(bucket, make):
    """Without locks: what holds is the conditional put of each commit."""
    make.batch("first").land(bucket)
    shards = [make.group([True] * 2, problem_id=f"p{i}") for i in range(3)]

    def lander():
        for shard in shards:
            shard.land(bucket)

    with ThreadPoolExecutor(2) as pool:
        for one in [pool.submit(lander) for _ in range(2)]:
            one.result(DEADLINE_S)
    for table in ("episodes", "calls"):
        assert query(f"select count(*) as n, count(distinct episode_id) as ids from bronze.{table}", bucket).row(0) == (
            7,
            7,
        )


def test_a_key_is_in_no_error_and_in_no_table(bucket, make, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret-thing")
    with connect(bucket) as connection, pytest.raises(Exception, match=r"duckdb_secrets") as error:
        connection.sql("from duckdb_secrets()")
    assert "very-secret-thing" not in str(error.value)


def test_other_stores_are_refused_with_what_there_is(make):
    with pytest.raises(UnsupportedStore, match="set LAKELOOP_LAKE to a folder, or to s3://BUCKET/PREFIX"):
        make.batch().land("gs://bucket/lake")


def test_a_bucket_without_a_key_says_what_is_missing(monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    with pytest.raises(UnsupportedStore, match="AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"):
        secret("s3://bucket/lake")


def test_plain_http_is_spoken_only_where_the_address_says_so(monkeypatch, tmp_path: Path):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://store.example")
    assert options("s3://bucket/lake") == {"conditional_put": "etag"}
    assert options(str(tmp_path)) is None


def test_an_erased_row_is_in_no_object_of_the_bucket(bucket, make):
    batches = [make.batch("p", number) for number in range(2)]
    for batch in batches:
        batch.land(bucket)
    store.opened(bucket, "calls").create_checkpoint()
    kept, gone = (batch.episodes[0].episode_id for batch in batches)
    files = Files(bucket, store.opened(bucket, "calls"))
    assert any(gone.encode() in files.read(path) for path in files.log())
    done = purge(bucket, "calls", rows_with("calls", "episode_id", [gone]))
    assert (done.rows, done.files) == (1, 1)
    assert not any(gone.encode() in files.read(path) for path in files.sizes())
    with connect(bucket) as lake:
        assert lake.execute("select episode_id from bronze.calls").fetchall() == [(kept,)]


def test_an_erasure_is_signed_only_when_no_object_under_the_url_holds_the_subject(
    bucket, server, make, tmp_path, monkeypatch
):
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))

    def put(name, content):
        at = bucket.replace("s3:/", server) + name
        assert httpx.put(at, content=content, trust_env=False, timeout=DEADLINE_S).status_code == 200

    def erased():
        wanted = plan.plan(bucket, subject="ada-lovelace", reason="ticket", requested_by="bob")
        erase.begin(wanted)
        erase.remove(wanted)
        return erase.finish(wanted, erase.look(wanted))

    make.batch("p", 0).land(bucket)
    make.batch("shop", 0, subject="ada-lovelace").land(bucket)
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("who", "of ada-lovelace")
    planted = {
        "/exports/copy.txt": b"ada-lovelace",
        "/exports/copy.gz": gzip.compress(b"of ada-lovelace"),
        "/calls/copy.zip": zipped.getvalue(),
        "/ada-lovelace/empty": b"",
    }
    for name, content in planted.items():
        put(name, content)
    put("-of-another/copy.txt", b"ada-lovelace")  # beside the lake, not in it
    with pytest.raises(erase.LeftOver, match="found in 4 places") as told:
        erased()
    assert all(bucket + name in str(told.value) for name in planted)
    assert erase.erasures(bucket)[0].scanned is None
    objects = PyFileSystem(DeltaStorageHandler(bucket, options=options(bucket)))
    for name in planted:
        objects.delete_file(name.lstrip("/"))
    row = erased()
    assert erase.verify(row) and '"found":0' in row.scanned
    assert query("select count(*) as n from episodes", bucket)["n"][0] == 1
