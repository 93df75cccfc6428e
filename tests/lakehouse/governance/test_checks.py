"""What must hold of a lake is checked, and what does not hold is told."""

from pathlib import Path

import pytest
from deltalake import DeltaTable

from lakehouse.governance import checks, erase, plan
from lakehouse.records import Evidence
from lakehouse.write import Writer


def failed(lake):
    return {result.name for result in checks.run(lake) if result.failed}


def test_a_sound_lake_passes_and_an_empty_one_too(lake, make):
    assert failed(lake) == set()
    make.group([True, False]).land(lake)
    results = checks.run(lake)
    assert {result.name for result in results} >= {"files", "one_landing", "orphans", "token_ledger"}
    assert all(result.rows == 0 and result.about for result in results)


def test_orphans_are_a_note(lake, make):
    batch = make.batch()
    Writer(lake).append("calls", batch.calls)
    (orphans,) = [result for result in checks.run(lake) if result.name == "orphans"]
    assert (orphans.rows, orphans.failed) == (1, False)


def test_a_missing_file_fails_and_the_other_checks_still_run(lake, make):
    make.batch().land(lake)
    (path,) = DeltaTable(f"{lake}/actions").file_uris()
    Path(path).unlink()
    results = {result.name: result for result in checks.run(lake)}
    assert results["files"].rows == 1
    assert "actions/" in results["files"].about
    assert results["one_landing"].rows == 0


def test_an_erasure_under_way_fails_a_finished_one_passes_and_a_row_that_comes_back_fails(town):
    wanted = plan.plan(town.lake, subject="ada-lovelace", reason="ticket", requested_by="bob")
    erase.begin(wanted)
    assert {"unfinished_erasures", "erased_rows"} <= failed(town.lake)
    erase.remove(wanted)
    erase.finish(wanted, erase.look(wanted))
    assert not {"unfinished_erasures", "erased_rows"} & failed(town.lake)
    told = {"attempt_id": "a", "name": "n", "value": "{}", "producer": "p", "created_at": wanted.begun_at}
    Writer(town.lake).append("evidence", [Evidence(episode_id=town.ada, **told)])  # by another door
    assert "erased_rows" in failed(town.lake)


@pytest.mark.parametrize("relation", ["checks.erased_rows", "checks.unfinished_erasures", "tainted_versions"])
def test_the_views_are_there_in_a_lake_without_erasures(lake, relation):
    from lakehouse import connect

    with connect(lake) as connection:
        assert connection.execute(f"select count(*) from {relation}").fetchone() == (0,)
