"""`why`, `where-used`, `bisect`, `ledger` and `filters` over a lake with two trained versions."""

import json
from datetime import UTC, datetime

import pytest
from deltalake import DeltaTable

from lakehouse.label import label
from lakehouse.records import Call, Episode, Evidence, ModelVersion, Problem, episode_id, group_id
from lakehouse.selection.select import Selection, select
from lakehouse.write import Writer

AT = datetime(2026, 1, 1, tzinfo=UTC)
PROBLEM = Problem(
    problem_id="p", kind="search", source="made up", split="train", title="t", prompt="q", spec="{}", licence="CC0-1.0",
    allowed_uses=["training"], difficulty=0.5, oracle_passed=True, null_failed=True, created_at=AT,
)  # fmt: skip


def play(run, version, sample):
    own = {"episode_id": episode_id(run, "p", sample), "attempt_id": "a"}
    call = Call(
        **own, call_id="c0", session_id="s", call_index=0, parent_call_id=None, segment=0, fork_reason="root",
        prompt_token_ids=[1, 2], completion_token_ids=[3, 4 + sample], logprobs=[-0.5, -0.5], weight_versions=[version] * 2,
        token_status="exact", token_route="generate", status="ok", finish_reason="stop", request_messages="[]",
        response_message="{}", tools="[]", sampling="{}", template_digest="t", engine_version="e", latency_s=0.1,
        started_at=AT,
    )  # fmt: skip
    episode = Episode(
        **own, run_id=run, group_id=group_id(run, "p"), problem_id="p", problem_kind="search", split="train",
        sample_index=sample, agent="x", backend="none", mode="policy", purpose="train", status="ok", error=None, session_id="s",
        model_name="toy", model_version=version, n_calls=1, n_prompt_tokens=2, n_completion_tokens=2, duration_s=1.0,
        started_at=AT, ended_at=AT,
    )  # fmt: skip
    value = json.dumps({"given": "x", "accepted": ["x"], "match": sample == 0})
    return episode, call, Evidence(**own, name="answer", value=value, producer="x", created_at=AT)


def register(version, training_set_id):
    return ModelVersion(
        name="toy", version=version, parent_version=version - 1 or None, training_set_id=training_set_id, mlflow_run_id="m",
        weights_path="w", weights_digest="d", stage="grpo", commit=f"commit{version}", created_at=AT,
    )  # fmt: skip


@pytest.fixture
def lake(lakeloop):
    """Versions 1 (from elsewhere), 2 and 3, of which 3 was trained with another filter."""
    writer = Writer()
    writer.append("problems", [PROBLEM])
    writer.append("model_versions", [register(1, None)])
    for version, filters in ((2, "grpo"), (3, "grpo+solved")):
        episodes, calls, evidence = zip(*(play(f"r{version}", version - 1, sample) for sample in range(3)), strict=True)
        writer.land(episodes, calls, [], evidence)
        label(None, "search@2")
        asked = Selection(
            objective="grpo", rubrics=["search@2"], filter=filters, run_ids=[f"r{version}"], policy_version=version - 1
        )
        writer.append("model_versions", [register(version, select(None, asked).training_set_id)])
    return writer.lake


def test_lineage_is_text_and_json(lakeloop, lake):
    told = lakeloop("why", "toy@3", "--verify")
    assert (told.status, told.err) == (0, "")
    for word in ("toy@3", "commit3", "solved", "search", "made up", "the same rows", "commit2"):
        assert word in told.said
    found = json.loads(lakeloop("why", "toy@3", "--json").out)
    assert (found["rows"], found["problems"], found["version"]["parent_version"]) == (1, {"p": 1}, 2)

    (episode,) = found["episodes"]
    assert "toy@3" in lakeloop("where-used", episode).said
    assert json.loads(lakeloop("where-used", episode, "--json").out)[0]["versions"][0]["version"] == 3

    told = lakeloop("bisect", "toy@2", "toy@3")
    assert told.status == 0 and "most likely the filter" in told.said
    assert json.loads(lakeloop("bisect", "toy@2", "toy@3", "--json").out)["effects"][0]["what"] == "filter"


def test_a_ledger_that_does_not_close_ends_with_status_1(lakeloop, lake):
    told = lakeloop("ledger", "--model", "toy@3", "--price-per-hour", "2")
    assert told.status == 0 and "not_solved" in told.said and "a trained token took" in told.said
    (account,) = json.loads(lakeloop("ledger", "--model", "toy@3", "--json").out)
    assert (account["sampled"], account["trained"], account["dropped"]) == (6, 2, {"not_solved": 4})
    assert json.loads(lakeloop("ledger", "--run", "r2", "--json").out)[0]["sampled"] == 6
    ledger = {"sampled": 9, "trained": 2, "masked": {}, "dropped": {}, "parts": []}
    DeltaTable(f"{lake}/training_sets").update(updates={"ledger": f"'{json.dumps(ledger)}'"})
    told = lakeloop("ledger")
    assert told.status == 1 and "does not close" in told.said and "gap of 7 tokens" in told.said


def test_filters_are_listed_with_their_settings_and_unknown_names_are_told(lakeloop):
    assert "max_calls=32" in lakeloop("filters").said
    listed = json.loads(lakeloop("filters", "--json").out)
    assert {"filter": "solved", "keeps": "episodes that solved their problem", "settings": {}, "yours": False} in listed
    told = lakeloop("why", "toy@1")
    assert told.status == 1 and "written NAME@NUMBER" in told.said
    assert lakeloop("where-used", "ep-1").status == 1
