"""What the DuckDB beneath a connection may do with the disk."""

import pytest

from lakehouse.query import engine


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_what_does_not_fit_into_memory_is_spilled_and_gone_afterwards(home, tmp_path):
    duckdb = engine._locked(str(tmp_path / "lake"), memory="100MB")
    found = duckdb.execute(
        "select count(*) from (select distinct md5(range::varchar) || md5((range + 1)::varchar) from range(1_000_000))"
    ).fetchone()
    assert found == (1_000_000,)
    duckdb.close()
    assert list((home / "cache" / "duckdb").iterdir()) == []


def test_what_a_killed_process_left_is_removed(home, tmp_path):
    left = home / "cache" / "duckdb" / "999999999"
    left.mkdir(parents=True)
    (left / "duckdb_temp_storage-0.tmp").write_bytes(b"x")
    engine._locked(str(tmp_path / "lake")).close()
    assert not left.exists()


def test_a_lake_with_a_like_name_beside_it_is_another_folder(tmp_path):
    from duckdb import PermissionException

    (tmp_path / "lake2").mkdir()
    (tmp_path / "lake2" / "secret").write_text("s")
    duckdb = engine._locked(str(tmp_path / "lake"))
    for path in ("lake2/secret", "lake/../lake2/secret"):
        with pytest.raises(PermissionException):
            duckdb.execute(f"from read_text('{tmp_path}/{path}')")
