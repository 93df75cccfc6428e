"""`query` by name, with parameters, pins and roles; `radar`."""

import json
from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

from flows.cli.app import app
from lakehouse.query.named import queries
from lakehouse.records import Episode, Evidence, dumps, episode_id, group_id
from lakehouse.write import Writer

AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def ask(tmp_path, monkeypatch):
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))
    own = {"episode_id": episode_id("r", "p", 0), "attempt_id": "a"}
    episode = Episode(
        **own, run_id="r", group_id=group_id("r", "p"), problem_id="p", problem_kind="swe", split="eval", sample_index=0,
        agent="swe", backend="docker", mode="policy", purpose="eval:base", status="model_error", error="it said nothing",
        session_id="s", model_name="tiny", model_version=1, n_calls=0, n_prompt_tokens=0, n_completion_tokens=0,
        duration_s=1.0, started_at=AT, ended_at=AT,
    )  # fmt: skip
    scan = {"counts": {"runner": 1}, "findings": []}
    Writer().land([episode], [], [], [Evidence(**own, name="scan", value=dumps(scan), producer="t 1", created_at=AT)])

    def ask(*words, code=0):
        done = CliRunner().invoke(app, list(words))
        assert done.exit_code == code, done.output
        return done

    return ask


def test_a_named_query_takes_parameters_and_gives_json(ask):
    assert json.loads(ask("query", "--named", "failures", "--json").stdout)[0]["cause"] == "it said nothing"
    assert json.loads(ask("query", "--named", "failures", "--set", "run=other", "--json").stdout) == []


def test_the_questions_can_be_listed(ask):
    listed = json.loads(ask("query", "--list", "--json").stdout)
    assert [one["name"] for one in listed] == [one.name for one in queries()]
    assert {p["name"] for one in listed if one["name"] == "worst_regressions" for p in one["parameters"]} == {
        "baseline", "candidate", "kind",
    }  # fmt: skip
    assert "Which problems got worse" in ask("query", "--list").stdout.replace("\n", " ")


@pytest.mark.parametrize(
    "words",
    [[], ["select 1", "--named", "cost"], ["select 1", "--set", "a=1"], ["--named", "cost", "--set", "a"]],
)
def test_what_cannot_be_meant_is_refused(ask, words):
    assert "Usage" in ask("query", *words, code=2).stderr


def test_a_role_sees_no_content(ask):
    (row,) = json.loads(ask("query", "select status, error from episodes", "--role", "analyst", "--json").stdout)
    assert row == {"status": "model_error", "error": None}


def test_the_radar_lists_episodes_versions_and_detectors(ask):
    (hit,) = json.loads(ask("radar", "--json").stdout)
    assert (hit["detector"], hit["weight"], hit["severe"], hit["detail"]) == ("runner_internals", 1.0, True, "runner 1")
    (version,) = json.loads(ask("radar", "--by-version", "--json").stdout)
    assert (version["model_version"], version["episodes"], version["rate"]) == (1, 1, 1.0)
    assert json.loads(ask("radar", "--run", "other", "--json").stdout) == []
    assert "saw nothing" in ask("radar", "--run", "other").stdout
    assert "runner_internals" in ask("radar", "--detectors").stdout
