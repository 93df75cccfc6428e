"""Erasure leaves nothing of what it is about, says what it did, and finishes what a crash began."""

import json
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from deltalake import DeltaTable

from lakehouse import connect
from lakehouse.erased import ErasedVersion, tombstone
from lakehouse.export import RowsErased, export_rows
from lakehouse.governance import audit, erase, plan, purge
from lakehouse.governance.plan import BY_EPISODE
from lakehouse.ingesting import missing

SECRET = "the heron of Wexley crossing sleeps at noon"
ASKED = "my account number is the one with the seven zeros"
TOKENS = list(range(3000, 3040))


def planned(town, **asked):
    return plan.plan(town.lake, **(asked or {"subject": "ada-lovelace"}), reason="ticket 7", requested_by="bob")


def erased(town, **asked):
    wanted = planned(town, **asked)
    erase.begin(wanted)
    erase.remove(wanted)
    return erase.finish(wanted, erase.look(wanted))


def test_the_plan_says_what_would_go_and_changes_nothing(town):
    before = town.bytes()
    wanted = planned(town)
    assert wanted.episode_ids == [town.ada]
    assert wanted.problem_ids == ["shop"]
    assert wanted.training_sets == ["ts-1"]
    assert wanted.tainted == ["toy@2", "toy@3", "toy@5"]
    assert wanted.trees == ["a" * 64]
    assert set(wanted.rows) == {*BY_EPISODE, "problems"}
    assert set(wanted.rows.values()) == {1}
    assert town.bytes() == before


@dataclass
class After:
    """A town after the erasure of ada, and what was there before."""

    town: Any
    row: Any  # of `erasures`
    before: bytes
    counts: dict[str, int]
    newest: int  # version of `calls`


@pytest.fixture(scope="module")
def erasure(built, tmp_path_factory) -> After:
    """One erasure for all tests that look at what is left."""
    root = tmp_path_factory.mktemp("after")
    shutil.copytree(built.root, root, dirs_exist_ok=True)
    town = type(built)(root, str(root / "lake"), built.ada, built.others)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAKELOOP_HOME", str(root))
        audit.note(town.lake, "review", town.ada, {"episode": town.ada, "outcome": 1})
        audit.note(town.lake, "declare source", "shops", {})
        with connect(town.lake) as lake:
            counts = {t: lake.execute(f"select count(*) from bronze.{t}").fetchone()[0] for t in BY_EPISODE}
        before, newest = town.bytes(), DeltaTable(f"{town.lake}/calls").version()
        return After(town, erased(town), before, counts, newest)


@pytest.fixture
def after(erasure, monkeypatch) -> After:
    monkeypatch.setenv("LAKELOOP_HOME", str(erasure.town.root))
    return erasure


def test_nothing_is_left_of_a_subject_and_nothing_else_is_lost(after):
    town, row, counts = after.town, after.row, after.counts
    gone = [town.ada, SECRET[4:30], ASKED[5:30], '"shop"']
    assert town.ada.encode() in after.before
    left = town.bytes()
    assert not any(one.encode() in left for one in gone)
    assert np.array(TOKENS, np.int32).tobytes() not in left
    for path in town.root.rglob("*.parquet"):
        held = pl.read_parquet(path, use_pyarrow=True)
        told = json.dumps(held.to_dicts(), default=str)
        assert not any(word in told for word in (*gone, 'ada-lovelace"', "3001, 3002, 3003")), path
    with connect(town.lake) as lake:
        for table, count in counts.items():
            assert lake.execute(f"select count(*) from bronze.{table}").fetchone()[0] == count - 1, table
        kept = {name for (name,) in lake.execute("select subject from bronze.episodes").fetchall()}
    assert kept == {"ada-lovelace-2"}
    assert json.loads(row.rows)["calls"] == 1
    told = json.loads(row.scanned)
    assert told["found"] == 0
    assert told["bytes"] > 10_000
    assert told["looked_for"]["texts"] >= 2
    assert told["looked_for"]["token_runs"] >= 2


def test_the_row_and_the_report_are_signed_and_name_nobody(after):
    town, row = after.town, after.row
    assert erase.verify(row)
    assert not erase.verify(row.model_copy(update={"tainted": []}))
    assert row.episode_ids == [tombstone(town.ada)]
    assert row.subject.startswith("su-")
    assert erase.erasures(town.lake) == [row]
    report = json.loads((town.root / "erasures" / f"{row.erasure_id}.json").read_text())
    assert report["signature"] == row.signature
    assert (town.root / "erasures" / f"{row.erasure_id}.md").read_text().startswith("# Erasure")
    assert stat.S_IMODE((town.root / "keys" / "governance").stat().st_mode) == 0o600
    assert audit.entries(town.lake)["action"].to_list() == ["erase", "declare source", "review"]
    assert plan.under_way() == []


def test_it_is_not_signed_while_anything_is_left_and_goes_on_when_that_is_removed(town):
    before = set(town.root.iterdir())
    (town.root / "notes.txt").write_text(f"we saw {town.ada}")
    pl.DataFrame({"t": [SECRET] * 9}).write_parquet(town.root / "copy.parquet", compression="gzip", statistics=False)
    np.save(town.root / "batch.npy", np.array([1, *TOKENS], np.int64))
    (town.root / "who.json").write_text('{"who":"ada-lovelace"}')
    (town.root / "cut.parquet").write_bytes(b"PAR1")
    planted = set(town.root.iterdir()) - before
    with pytest.raises(erase.LeftOver) as told:
        erased(town)
    assert all(str(path) in str(told.value) for path in planted)
    assert erase.erasures(town.lake)[0].scanned is None
    for path in planted:
        path.unlink()
    row = erased(town)
    assert row.scanned is not None
    assert json.loads(row.rows)["calls"] == 1  # removed by the first attempt
    assert [one.erasure_id for one in erase.erasures(town.lake)] == [row.erasure_id]


def test_after_a_crash_repeating_it_finishes(town, monkeypatch):
    done = purge.Files.delete

    def killed(self, path):
        done(self, path)
        if "/training_rows" in str(self._root):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(purge.Files, "delete", killed)
        with pytest.raises(KeyboardInterrupt):
            erased(town)
    row = erased(town)
    assert town.ada.encode() not in town.bytes()
    assert set(json.loads(row.rows)) == {*BY_EPISODE, "problems"}
    assert row.lost_versions is not None
    lost = json.loads(row.lost_versions)
    assert lost["calls"] and lost["episodes"]


def test_what_is_erased_does_not_land_again_nor_while_it_is_under_way(town, make):
    again = make.batch("shop", 0, subject="ada-lovelace", attempt="a9")
    erase.begin(planned(town))
    assert again.land(town.lake).skipped == [town.ada]
    purge.purge(town.lake, "episodes", purge.rows_with("episodes", "episode_id", [town.ada]))
    assert again.land(town.lake).skipped == [town.ada]


def test_what_the_subject_lands_while_it_is_under_way_goes_too(town, make):
    wanted = planned(town)
    erase.begin(wanted)
    late = make.batch("shop", 7, subject="ada-lovelace", problem_kind="external")
    late.land(town.lake)
    erase.remove(wanted)
    with pytest.raises(erase.LeftOver):
        erase.finish(wanted, erase.look(wanted))
    row = erased(town)
    assert len(row.episode_ids) == 2
    assert late.episodes[0].episode_id.encode() not in town.bytes()


def test_what_the_subject_lands_while_the_scan_looks_is_not_signed_as_gone(town, make):
    wanted = planned(town)
    erase.begin(wanted)
    erase.remove(wanted)
    scanned = erase.look(wanted)
    assert not scanned.found
    late = make.batch("p", 7, subject="ada-lovelace")
    assert late.land(town.lake).episodes == 1
    with pytest.raises(erase.LeftOver, match=r"landed \(.*episodes: 1.*--resume " + wanted.erasure_id):
        erase.finish(wanted, scanned)
    assert erase.erasures(town.lake)[0].scanned is None
    row = erased(town)
    assert len(row.episode_ids) == 2 and json.loads(row.rows)["episodes"] == 2
    assert late.episodes[0].episode_id.encode() not in town.bytes()


def test_a_pin_to_what_is_gone_names_the_erasure_and_other_pins_hold(after):
    town, row = after.town, after.row
    with connect(town.lake, pinned={"calls": after.newest}) as lake, pytest.raises(ErasedVersion, match=row.erasure_id):
        lake.execute("select count(*) from calls").fetchall()
    with connect(town.lake, pinned={"calls": 1}) as lake:
        assert lake.execute("select count(*) from bronze.calls").fetchone() == (1,)


def test_versions_made_of_it_are_tainted_with_their_descendants_and_pupils(after, built):
    town, row = after.town, after.row
    erase.refuse_tainted(built.lake, "toy", 2)  # before
    assert row.tainted == ["toy@2", "toy@3", "toy@5"]
    for version in (2, 3, 5):
        with pytest.raises(erase.Tainted, match=row.erasure_id):
            erase.refuse_tainted(town.lake, "toy", version)
    for version in (1, 4):
        erase.refuse_tainted(town.lake, "toy", version)


def test_a_training_set_that_lost_rows_is_not_handed_out_again(after, built, tmp_path):
    export_rows(built.lake, "ts-1", tmp_path / "before.parquet")
    with pytest.raises(RowsErased, match=after.row.erasure_id):
        export_rows(after.town.lake, "ts-1", tmp_path / "rows.parquet")


def test_the_audit_keeps_the_act_and_forgets_the_episode(after):
    stone = tombstone(after.town.ada)
    found = audit.entries(after.town.lake, action="review")
    assert found["object"].to_list() == [stone]
    assert json.loads(found["detail"][0]) == {"episode": stone, "outcome": 1}
    assert audit.entries(after.town.lake, action="declare source")["object"].to_list() == ["shops"]


def test_an_erased_session_is_not_ingested_again(after):
    ada = after.town.ada
    assert missing(after.town.lake, {ada: "shop", "ep-new": "shop"}) == {"ep-new"}


def test_episodes_are_erased_by_id_and_a_shared_problem_stays(town):
    row = erased(town, episode_ids=[town.others[0]])
    assert json.loads(row.rows)["calls"] == 1
    assert "problems" not in json.loads(row.rows)
    assert town.others[0].encode() not in town.bytes()
    assert town.ada.encode() in town.bytes()


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"subject": "nobody"}, "nothing of subject 'nobody'"),
        ({"episode_ids": ["ep-" + "0" * 24]}, "nothing of ep-000"),
        ({}, "either a subject or episodes"),
        ({"subject": "a", "episode_ids": ["b"]}, "either a subject or episodes"),
    ],
)
def test_a_request_that_cannot_be_met_says_why(town, asked, told):
    with pytest.raises((plan.NothingToErase, plan.BadRequest), match=told):
        plan.plan(town.lake, reason="r", requested_by="bob", **asked)


def test_a_reason_may_not_name_the_subject(town):
    with pytest.raises(plan.BadRequest, match="reason"):
        plan.plan(town.lake, subject="ada", reason="ada asked", requested_by="bob")


def test_a_lake_outside_the_home_folder_is_scanned_too(town, monkeypatch, tmp_path_factory):
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path_factory.mktemp("elsewhere")))
    (Path(town.lake) / "copy.txt").write_text(town.ada)
    with pytest.raises(erase.LeftOver, match=r"copy\.txt"):
        erased(town)
