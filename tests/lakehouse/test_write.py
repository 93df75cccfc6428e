import json
import subprocess
import sys
import time
from datetime import timedelta

import pyarrow.fs
import pytest

from lakehouse import commits, store
from lakehouse.invariants import InvalidRecord
from lakehouse.query import connect, query
from lakehouse.write import Writer


def count(lake: str, relation: str) -> int:
    return int(query(f"select count(*) as n from {relation}", lake)["n"][0])


LANDER = """
import json, sys, time
from pathlib import Path
from lakehouse.records import Action, Call, Episode, Evidence
from lakehouse.write import Writer

lake, batches, go, ready = sys.argv[1:]
writer = Writer(lake)
shards = [
    [[kind(**row) for row in rows] for kind, rows in zip((Episode, Call, Action, Evidence), shard)]
    for shard in json.loads(Path(batches).read_text())
]
Path(ready).touch()
end = time.monotonic() + 60
while not Path(go).exists() and time.monotonic() < end:
    time.sleep(0.001)
for shard in shards:
    writer.land(*shard)
"""


def test_the_same_transaction_twice_writes_once(lake, make):
    first = Writer(lake).append("problems", [make.problem()], transaction="seed-1")
    again = Writer(lake).append("problems", [make.problem("other")], transaction="seed-1")
    assert (first.rows, first.skipped) == (1, False)
    assert (again.rows, again.skipped, again.version) == (0, True, first.version)
    assert count(lake, "bronze.problems") == 1


def test_another_transaction_writes_again(lake, make):
    Writer(lake).append("problems", [make.problem()], transaction="seed-1")
    Writer(lake).append("problems", [make.problem("other")], transaction="seed-2")
    assert count(lake, "problems") == 2


def test_an_episode_lands_once_ever(lake, make):
    batch = make.batch()
    assert batch.land(lake).episodes == 1
    again = batch.land(lake)
    assert (again.episodes, again.skipped) == (0, [batch.episodes[0].episode_id])
    assert {t: count(lake, f"bronze.{t}") for t in ("episodes", "calls", "actions", "evidence")} == {
        "episodes": 1,
        "calls": 1,
        "actions": 1,
        "evidence": 1,
    }


def test_a_late_attempt_of_a_landed_episode_is_a_no_op(lake, make):
    make.batch(attempt="a0").land(lake)
    make.batch(attempt="a1").land(lake)
    assert query("select attempt_id from bronze.calls", lake)["attempt_id"].to_list() == ["a0"]


def test_a_batch_lands_what_is_new_and_skips_the_rest(lake, make):
    make.batch(sample=0).land(lake)
    landed = make.group([True, False, True]).land(lake)
    assert (landed.episodes, len(landed.skipped)) == (2, 1)
    assert count(lake, "checks.one_landing") == 0


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.fixture
def killed_before_episodes(monkeypatch):
    """A landing that dies after its children and before its episodes."""
    real = commits.write

    def dying(delta, table, data, transaction):
        if table == "episodes":
            raise Killed
        real(delta, table, data, transaction)

    def kill(batch, lake):
        with monkeypatch.context() as patch:
            patch.setattr(commits, "write", dying)
            with pytest.raises(Killed):
                batch.land(lake)

    return kill


def test_children_of_a_killed_landing_are_invisible(lake, make, killed_before_episodes):
    killed_before_episodes(make.batch(), lake)
    assert count(lake, "bronze.calls") == 1
    assert [count(lake, t) for t in ("episodes", "calls", "actions", "evidence", "tokens")] == [0] * 5
    assert count(lake, "checks.orphans") == 3


@pytest.mark.parametrize("attempt", ["a0", "a1"], ids=["same attempt", "new attempt"])
def test_landing_again_after_a_kill_is_correct(lake, make, killed_before_episodes, attempt):
    killed_before_episodes(make.batch(attempt="a0"), lake)
    assert make.batch(attempt=attempt).land(lake).episodes == 1
    assert [count(lake, t) for t in ("episodes", "calls", "actions", "evidence")] == [1] * 4


def test_evidence_that_was_read_again_later_lands_once(lake, make, killed_before_episodes):
    """An external session is read anew by the next ingest, under the same attempt and with the time of that reading."""
    batch = make.batch()
    killed_before_episodes(batch, lake)
    batch.evidence = [
        one.model_copy(update={"created_at": one.created_at + timedelta(seconds=30)}) for one in batch.evidence
    ]
    assert batch.land(lake).episodes == 1
    assert (count(lake, "evidence"), count(lake, "checks.unique_keys")) == (1, 0)


def test_processes_landing_the_same_episodes_at_once_land_them_once(lake, make, tmp_path):
    shards = [make.group([True] * 4, problem_id=f"p{i}") for i in range(3)]
    rows = [[[r.model_dump(mode="json") for r in part] for part in vars(shard).values()] for shard in shards]
    (tmp_path / "batches.json").write_text(json.dumps(rows))
    go, ready = tmp_path / "go", [tmp_path / f"ready{i}" for i in range(2)]
    command = [sys.executable, "-c", LANDER, lake, str(tmp_path / "batches.json"), str(go)]
    workers = [subprocess.Popen([*command, str(flag)]) for flag in ready]
    try:
        deadline = time.monotonic() + 60
        while not all(flag.exists() for flag in ready):
            assert time.monotonic() < deadline, "the landing processes did not start"
            time.sleep(0.01)
        go.touch()
        assert [worker.wait(120) for worker in workers] == [0, 0]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert [count(lake, f"bronze.{t}") for t in ("episodes", "calls", "evidence")] == [12] * 3


def test_without_locks_landings_of_one_snapshot_still_land_once(lake, make, monkeypatch):
    """As on an object store: the commits' application transaction finds the conflict."""
    monkeypatch.setattr(store, "is_folder", lambda lake: False)
    batch = make.batch()
    make.batch("other").land(lake)
    real, raced = commits.write, []

    def overtaken(delta, table, data, transaction):
        if table == "episodes" and not raced:
            raced.append(True)
            batch.land(lake)  # another writer is first
        real(delta, table, data, transaction)

    monkeypatch.setattr(commits, "write", overtaken)
    assert batch.land(lake).episodes == 0
    assert [count(lake, f"bronze.{t}") for t in ("episodes", "calls", "actions", "evidence")] == [2] * 4


def test_a_key_twice_in_a_batch_is_refused(lake, make):
    with pytest.raises(InvalidRecord, match="a key appears once"):
        Writer(lake).append("problems", [make.problem(), make.problem()])


def test_a_record_of_another_class_is_refused(lake, make):
    with pytest.raises(TypeError, match="table episodes holds Episode records, not Problem"):
        Writer(lake).append("episodes", [make.problem()])


def test_a_demonstration_lands_without_logprobs(lake, make):
    call = make.call([1], [2, 3], logprobs=None, weight_versions=[-1, -1], token_route="demonstration")
    assert make.batch(calls=[call], mode="demonstration", model_version=None).land(lake).episodes == 1


def test_compaction_keeps_the_rows_and_the_old_versions(lake, make):
    for sample in range(4):
        make.batch(sample=sample).land(lake)
    before = store.versions(lake)["calls"]
    report = {done.table: done for done in Writer(lake).compact()}
    assert (report["calls"].files_before, report["calls"].files_after) == (4, 1)
    assert report["calls"].version > before
    assert count(lake, "calls") == 4
    with connect(lake, pinned={"calls": before}) as pinned:
        assert pinned.execute("select count(*) from bronze.calls").fetchone() == (4,)


def test_waiting_for_a_lock_ends_at_its_deadline(lake):
    with (
        store.exclusive(lake, "calls"),
        pytest.raises(store.LakeBusy, match="another writer of table 'calls'"),
        store.exclusive(lake, "calls", deadline_s=0.1),
    ):
        pass


def test_a_folder_is_read_without_python_files_which_abort_processes_on_their_way_out(lake, make, monkeypatch):
    make.batch().land(lake)
    problem = make.problem()
    Writer(lake).put_problems([problem])

    def refuse(*_):
        raise AssertionError("a table of a folder was read through a Python file system")

    monkeypatch.setattr(pyarrow.fs, "PyFileSystem", refuse)
    monkeypatch.setattr("deltalake.table.DeltaStorageHandler", refuse, raising=False)
    make.batch().land(lake)
    assert Writer(lake).put_problems([problem]).rows == 0


def test_a_lake_in_a_folder_with_odd_characters_is_read_too(tmp_path, make):
    lake = str(tmp_path / "ä lake")
    make.batch().land(lake)
    assert make.batch().land(lake).episodes == 0
