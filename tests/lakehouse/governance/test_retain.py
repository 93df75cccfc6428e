"""Content goes when its time is over, also from old versions; what happened stays."""

from datetime import timedelta

import polars as pl
import pytest
from deltalake import DeltaTable

from lakehouse import connect
from lakehouse.erased import ErasedVersion
from lakehouse.governance import audit, checks, erase
from lakehouse.governance.retain import EMPTY, retain
from lakehouse.records import Source, now
from lakehouse.schema import TABLES
from lakehouse.write import Writer

SAID = "the heron sleeps at noon"


def aged(make, number: int, days: float, *, problem: str = "p", **changes):
    """An episode that ended so many days ago, whose content says so."""
    at = now() - timedelta(days=days)
    call = make.call([1, 2, 3], [4, 5], request_messages=f'["{SAID} {days}"]', started_at=at)
    return make.batch(problem, number, calls=[call], started_at=at, ended_at=at, **changes)


def declared(source: str, retention_days: int | None, **changes) -> Source:
    uses = {"licence": "x", "allowed_uses": ["training"], "consent": "given", "privacy": "allow"}
    told = {"retention_days": retention_days, "declared_by": "bob", "declared_at": now()}
    return Source(source=source, **uses | told | changes)


@pytest.fixture
def old(home_folder, lake, make):
    """A lake with one episode past the rule of its tables and one within it."""
    aged(make, 0, 400).land(lake)
    aged(make, 1, 100).land(lake)
    Writer(lake).compact()
    return lake


def everything(root) -> str:
    told = [str(path) for path in root.rglob("*") if path.is_file()]
    return "".join(
        pl.read_parquet(p).write_json() if p.endswith(".parquet") and "_delta_log" not in p else "" for p in told
    )


def test_every_column_of_content_has_an_emptied_value():
    for table in TABLES.values():
        if "episode_id" in table.record.model_fields:
            for name, about in table.columns.items():
                field = table.arrow.field(name)
                if about.sensitivity == "content" and not field.nullable and field.type == "string":
                    assert name in EMPTY, f"{table.name}.{name}"


def test_content_past_its_rule_goes_from_every_version_and_the_facts_stay(old, home_folder):
    assert f"{SAID} 400" in everything(home_folder)
    done = {one.table: one for one in retain(old)}
    assert (done["calls"].episodes, done["calls"].rows) == (1, 1)
    assert f"{SAID} 400" not in everything(home_folder)
    assert f"{SAID} 100" in everything(home_folder)
    with connect(old) as lake:
        rows = lake.execute(
            "select len(completion_token_ids), weight_versions, len(logprobs), token_status, request_messages from calls"
            " order by started_at"
        ).fetchall()
        assert rows[0] == (0, [1, 1], 2, "missing", "[]")
        assert rows[1][:4] == (2, [1, 1], 2, "exact")
        assert lake.execute("select count(*) from episodes").fetchone() == (2,)
    assert not [result.name for result in checks.run(old) if result.failed]
    assert retain(old) == []
    assert set(audit.entries(old, action="retain")["object"]) == set(done)


def test_a_pin_to_what_is_gone_says_that_it_was_retention(old):
    newest = DeltaTable(f"{old}/calls").version()
    retain(old)
    with connect(old, pinned={"calls": newest}) as lake, pytest.raises(ErasedVersion, match="retention"):
        lake.execute("from calls").fetchall()
    assert all(erase.verify(row) for row in erase.erasures(old))


def test_a_dry_run_says_the_same_and_changes_nothing(old):
    versions = {table: DeltaTable(f"{old}/{table}").version() for table in ("calls", "actions")}
    planned = {one.table: (one.episodes, one.rows) for one in retain(old, dry_run=True)}
    assert versions == {table: DeltaTable(f"{old}/{table}").version() for table in versions}
    assert planned == {one.table: (one.episodes, one.rows) for one in retain(old)}


def test_a_source_has_a_rule_of_its_own(old, make):
    writer = Writer(old)
    writer.put_problems([make.problem("p", source="shop"), make.problem("q", source="library")])
    aged(make, 2, 400, problem="q").land(old)
    writer.append("sources", [declared("shop", 30), declared("library", 1000)])
    done = {one.table: one for one in retain(old)}
    assert done["calls"].episodes == 2  # both of the shop, at 100 and 400 days; none of the library
    with connect(old) as lake:
        left = lake.execute(
            "select problem_id from episodes semi join (from calls where token_status = 'exact') using (episode_id)"
        )
        assert left.fetchall() == [("q",)]


def test_the_rule_of_external_holds_for_conversations_whose_problem_is_not_in_the_lake(home_folder, lake, make):
    writer = Writer(lake)
    writer.append("sources", [declared("external", 30), declared("*", 1000)])
    writer.append("problems", [make.problem("known", kind="external", source="shop")])
    for number, problem in enumerate(("unknown", "known")):
        aged(make, number, 60, problem=problem, problem_kind="external").land(lake)
    assert {one.table: one.episodes for one in retain(lake)}["calls"] == 1
    with connect(lake) as held:
        left = held.execute("select problem_id, token_status from episodes join calls using (episode_id) order by all")
        assert left.fetchall() == [("known", "exact"), ("unknown", "missing")]


def test_rows_without_an_episode_go_by_their_own_time(old, make):
    lost = aged(make, 9, 500)
    Writer(old).append("calls", lost.calls)
    assert {one.table: one.episodes for one in retain(old)}["calls"] == 2
