"""`erase`, `erasures`, `audit`, `checks` on the command line."""

import json

import pytest

from lakehouse.governance import audit, plan
from lakehouse.home import home
from lakehouse.records import Review, now
from lakehouse.write import Writer
from sandboxes.gateway.sessions.journal import Journal
from sandboxes.gateway.sessions.schema import SessionRow

ID = "ep-0123456789abcdef01234567"


@pytest.fixture
def reviewed(lakeloop):
    """A lake in which one table names the episode."""
    told = {"reviewer": "bob", "queue": "random", "outcome": 1.0, "comment": "fine", "reviewed_at": now()}
    Writer().append("reviews", [Review(review_id="r", episode_id=ID, **told)])
    return lakeloop


def test_a_dry_run_says_what_would_go_and_leaves_no_plan(reviewed):
    ended = reviewed("erase", "--episode", ID, "--dry-run", "--json")
    assert ended.status == 0
    assert json.loads(ended.out)["rows"] == {"reviews": 1}
    assert plan.under_way() == []
    assert "reviews" in reviewed("erase", "--episode", ID, "--dry-run").out


async def test_a_subject_that_only_the_journal_knows_is_found(reviewed):
    journal = Journal(home().gateway / "journal.db", home().keys / "sessions")
    about = {"task_id": "shop/1", "mode": "policy", "engine_version": "1", "template_digest": "d"}
    row = SessionRow(n=1, session_id="shop/1-1", **about, started_at=now().isoformat(), subject="customer-17")
    await journal.start_session(row, [])
    journal.close()
    ended = reviewed("erase", "--subject", "customer-17", "--dry-run", "--json")
    assert (json.loads(ended.out)["episodes"], json.loads(ended.out)["rows"]) == (1, {})


def test_a_plan_is_kept_for_the_deployment_and_listed(reviewed):
    ended = reviewed("erase", "--episode", ID, "--reason", "ticket", "--plan", "--json")
    (planned,) = plan.under_way()
    assert json.loads(ended.out)["erasure_id"] == planned.erasure_id
    assert json.loads(reviewed("erasures", "--json").out) == {"erasures": [], "planned": [planned.erasure_id]}


def test_what_cannot_be_erased_is_told(reviewed):
    assert "say why" in reviewed("erase", "--episode", ID).said
    assert "there is nothing" in reviewed("erase", "--subject", "nobody", "--reason", "t", "--yes").said
    assert "no erasure 'ee-0'" in reviewed("erase", "--resume", "ee-0").said
    ended = reviewed("erase", "--episode", ID, "--reason", "t", "--yes")
    assert (ended.status, "Run `lakeloop up` first" in ended.said) == (1, True)
    assert home().root.joinpath("lake", "reviews").exists()


def test_the_audit_is_listed_and_filtered(reviewed):
    audit.note(None, "review", "ep-1", {"outcome": 1}, actor="bob")
    audit.note(None, "export", "ts-1", actor="ann")
    found = json.loads(reviewed("audit", "--actor", "bob", "--json").out)
    assert [(row["action"], row["object"], row["detail"]) for row in found] == [("review", "ep-1", {"outcome": 1})]
    assert "ts-1" in reviewed("audit", "--since", "2020-01-01").out


def test_checks_end_with_status_1_where_one_fails(reviewed):
    assert reviewed("checks").status == 0
    for path in (home().root / "lake" / "reviews").glob("*.parquet"):
        path.unlink()
    ended = reviewed("checks", "--json")
    assert ended.status == 1
    assert {one["check"]: one["rows"] for one in json.loads(ended.out)}["files"] == 1
