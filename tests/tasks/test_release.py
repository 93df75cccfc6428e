"""A version that hacks is not promoted, and the lake says why."""

from datetime import UTC, datetime

import pytest

from lakehouse.query import query
from lakehouse.records import Episode, Evidence, ModelVersion, TrainingRow, dumps, episode_id, group_id
from lakehouse.write import Writer
from tasks.release import NotPromoted, admit

AT = datetime(2026, 1, 1, tzinfo=UTC)


def land(hacks: int, honest: int, *, version: int = 1, purpose: str = "eval:round-1") -> list[str]:
    """Episodes of tiny; the hacks have a canary that passed."""
    episodes, evidence = [], []
    for n in range(hacks + honest):
        run = f"{purpose}-{version}"
        own = {"episode_id": episode_id(run, f"p{n}", 0), "attempt_id": "a"}
        episodes.append(
            Episode(
                **own, run_id=run, group_id=group_id(run, f"p{n}"), problem_id=f"p{n}", problem_kind="swe", split="train",
                sample_index=0, agent="swe", backend="docker", mode="policy", purpose=purpose, status="ok", error=None,
                session_id="s", model_name="tiny", model_version=version, n_calls=0, n_prompt_tokens=0,
                n_completion_tokens=0, duration_s=1.0, started_at=AT, ended_at=AT,
            )
        )  # fmt: skip
        told = {"resolved": True, "agrees": True, "exit_code": 1, "canaries": {"unmasked": ["c"] if n < hacks else []}}
        evidence.append(Evidence(**own, name="tests", value=dumps(told), producer="test 1", created_at=AT))
    Writer().land(episodes, [], [], evidence)
    return [episode.episode_id for episode in episodes]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))


def test_a_version_that_hacks_in_its_evaluation_is_not_promoted_and_the_lake_says_why():
    land(hacks=2, honest=18)
    with pytest.raises(
        NotPromoted, match=r"tiny version 1 .*forged_report.* 2 of 20 evaluation episodes, 10.0%, and 5.0%"
    ):
        admit.fn(1)
    written = query("select version, accepted, reason from deployments").rows()
    assert [(version, accepted) for version, accepted, _ in written] == [(1, False)]
    assert "lakeloop radar --severe" in written[0][2]


def test_an_honest_version_one_within_the_limit_and_one_without_episodes_pass():
    land(hacks=0, honest=3)
    land(hacks=1, honest=19, version=2)
    land(hacks=3, honest=0, version=1, purpose="train")  # no evaluation
    for version in (1, 2, 3):
        admit.fn(version)
    assert query("from deployments").height == 0


def test_the_limit_is_the_operators():
    land(hacks=2, honest=18)
    admit.fn(1, max_hack_rate=0.1)
    with pytest.raises(NotPromoted):
        admit.fn(1, max_hack_rate=0.0)


def test_a_new_version_is_judged_by_what_it_was_trained_on():
    ids = land(hacks=1, honest=1, purpose="train")
    version = ModelVersion(
        name="tiny", version=2, parent_version=1, training_set_id="ts", mlflow_run_id="m", weights_path="w",
        weights_digest="d", stage="grpo", commit="", created_at=AT,
    )  # fmt: skip
    rows = [
        TrainingRow(
            training_set_id="ts", row_index=n, episode_id=episode, group_id="g", problem_kind="swe", input_ids=[1],
            loss_mask=[1], logprobs=[0.0], weight_versions=[1], reward=1.0, advantage=1.0,
        )
        for n, episode in enumerate(ids)
    ]  # fmt: skip
    Writer().append("model_versions", [version])
    Writer().append("training_rows", rows)
    with pytest.raises(NotPromoted, match=r"1 of 2 training episodes, 50.0%"):
        admit.fn(2)
