"""What breaks a rule is kept apart with the reason, and the rest lands."""

import json
import logging
from datetime import timedelta

import pytest

from lakehouse.collecting import remaining
from lakehouse.ingesting import missing
from lakehouse.invariants import ClockSkew
from lakehouse.label import label
from lakehouse.query import query
from lakehouse.records import Deployment, now
from lakehouse.selection.select import Selection, select
from lakehouse.write import DuplicateEpisode, Writer


def count(lake: str, relation: str) -> int:
    return int(query(f"select count(*) as n from {relation}", lake)["n"][0])


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"logprobs": [-0.1]}, "logprobs has one value per completion token"),
        ({"weight_versions": [1]}, "weight_versions has one value per completion token"),
        ({"redacted": [0]}, "redacted has one value per completion token"),
        ({"logprobs": [-0.1, float("nan")]}, "logprobs are finite"),
        ({"logprobs": [-0.1, float("-inf")]}, "logprobs are finite"),
        ({"completion_token_ids": [4, -5]}, "completion_token_ids are >= 0"),
        ({"prompt_token_ids": [-1]}, "prompt_token_ids are >= 0"),
        ({"logprobs": None}, "a sampled call with token_status exact has logprobs"),
        ({"weight_versions": [1, -1]}, "the weight version of a sampled token is known"),
    ],
)
def test_an_episode_with_a_broken_call_is_kept_apart_with_the_rule_and_the_rest_lands(
    lake, make, changes, rule, caplog
):
    good, bad = make.call([1], [2], index=0), make.call([1, 2, 3], [4, 5], index=1, **changes)
    broken = make.batch("broken", calls=[good, bad])
    with caplog.at_level(logging.WARNING, "lakehouse"):
        landed = (broken + make.batch("sound")).land(lake)
    name = broken.episodes[0].episode_id
    assert (landed.episodes, landed.quarantined) == (1, [name])
    assert rule in caplog.text
    kept = query("select * from quarantine order by table_name", lake).to_dicts()
    assert [(row["table_name"], row["episode_id"]) for row in kept] == [("calls", name), ("episodes", name)]
    assert kept[0]["rule"] == rule
    assert json.loads(kept[0]["row_key"])["call_index"] == 1
    assert rule in kept[1]["rule"]
    assert count(lake, "bronze.calls") == count(lake, "bronze.episodes") == 1


def test_quarantine_keeps_what_shows_the_fault_and_no_content(lake, make):
    call = make.call([1, 2, 3], [4, 5], logprobs=[-0.25, float("nan")], request_messages='[{"content": "a secret"}]')
    make.batch(calls=[call]).land(lake)
    payload = query("select payload from quarantine where table_name = 'calls'", lake)["payload"][0]
    shown = json.loads(payload)
    assert shown["logprobs"] == [-0.25, "nan"]
    assert shown["completion_token_ids"] == {"length": 2}
    assert "secret" not in payload


def test_refusing_the_same_rows_again_adds_nothing(lake, make):
    batch = make.batch(n_completion_tokens=7)
    assert batch.land(lake).quarantined == batch.land(lake).quarantined
    assert query("select rule from quarantine", lake)["rule"].to_list() == [
        "n_completion_tokens is 7, its calls in the batch make 2"
    ]


def test_a_child_without_an_episode_in_its_batch_is_kept_apart_alone(lake, make):
    batch, stray = make.batch(), make.batch("elsewhere").actions
    batch.actions = [*batch.actions, *stray]
    assert batch.land(lake).episodes == 1
    assert query("select table_name, episode_id from quarantine", lake).rows() == [("actions", stray[0].episode_id)]


def test_a_run_ends_although_an_episode_is_in_quarantine(lake, make):
    Writer(lake).append("dispatches", [make.dispatch("p", sample) for sample in range(3)])
    make.batch("p", 0).land(lake)
    broken = make.batch("p", 1, n_calls=5)
    broken.land(lake)
    assert [one.sample_index for one in remaining(lake, "r")] == [2]
    assert missing(lake, {broken.episodes[0].episode_id: "t", "never": "t"}) == {"never"}


def test_tokens_of_a_version_or_vocabulary_that_the_model_does_not_have_are_refused(lake, make, tmp_path):
    (tmp_path / "config.json").write_text('{"vocab_size": 10}')
    version = make.version(2, parent=1).model_copy(update={"weights_path": str(tmp_path)})
    Writer(lake).append("model_versions", [version])
    by_hand = Deployment(
        deployment_id="d", name="toy", version=5, engine_url="", proof="{}", accepted=True, reason="", deployed_at=now()
    )
    failed = by_hand.model_copy(update={"deployment_id": "e", "version": 7, "accepted": False})
    Writer(lake).append("deployments", [by_hand, failed])
    deployed = make.batch("deployed", calls=[make.call([1], [9], version=5)])
    fine = make.batch("fine", calls=[make.call([1], [9], version=2)])
    parent = make.batch("parent", calls=[make.call([1], [9], version=1)])
    other = make.batch("other", calls=[make.call([1], [9], version=7)])
    outside = make.batch("outside", calls=[make.call([1], [10])])
    another = make.batch("another", calls=[make.call([1], [10], version=7)], model_name="unregistered")
    assert (fine + deployed + parent + other + outside + another).land(lake).episodes == 4
    rules = query("select episode_id, rule from quarantine where table_name = 'calls'", lake).rows()
    assert dict(rules) == {
        other.episodes[0].episode_id: "weight versions are registered versions of toy",
        outside.episodes[0].episode_id: "token ids are below 10, the vocabulary of toy",
    }


def test_the_same_attempt_with_another_payload_is_an_error_and_both_are_kept(lake, make):
    first = make.batch(calls=[make.call([1, 2, 3], [4, 5])])
    other = make.batch(calls=[make.call([1, 2, 3], [4, 6])])
    first.land(lake)
    with pytest.raises(DuplicateEpisode, match="1 episode ids came twice with different payloads") as error:
        (other + make.batch("sound")).land(lake)
    assert error.value.landed.episodes == 1
    kept = query("select table_name, rule from quarantine where table_name = 'calls' order by rule", lake).rows()
    assert [rule for _, rule in kept] == [
        "an episode id has one payload: it landed before with another one",
        "an episode id has one payload: this is the one that landed first",
    ]
    assert count(lake, "bronze.calls") == 2
    first.land(lake)  # the one that landed: no error, nothing new
    assert count(lake, "quarantine") == 3


def test_two_rows_of_one_attempt_in_a_batch_that_differ_are_an_error_and_neither_lands(lake, make):
    batch = make.batch()
    batch.episodes.append(batch.episodes[0].model_copy(update={"duration_s": 2.0}))
    with pytest.raises(DuplicateEpisode):
        (batch + make.batch("sound")).land(lake)
    assert query("select problem_id from episodes", lake)["problem_id"].to_list() == ["sound"]
    assert count(lake, "quarantine where table_name = 'episodes'") == 2


def test_a_second_attempt_in_the_same_batch_is_a_no_op(lake, make):
    assert (make.batch(attempt="a0") + make.batch(attempt="a1")).land(lake).episodes == 1
    assert query("select attempt_id from bronze.calls", lake)["attempt_id"].to_list() == ["a0"]
    assert count(lake, "quarantine") == 0


def test_times_ahead_of_the_clock_are_refused_before_anything_is_written(lake, make):
    ahead = now() + timedelta(hours=2)
    with pytest.raises(ClockSkew, match=r"ahead of this machine's clock; nothing was written\. Set the clocks"):
        make.batch(started_at=ahead, ended_at=ahead).land(lake)
    assert count(lake, "bronze.calls") == 0


def test_an_edition_from_a_clock_that_is_ahead_is_not_overtaken_silently(lake, make):
    future = make.problem(created_at=now() + timedelta(hours=1))
    Writer(lake).append("problems", [future.model_copy(update={"edition": future.content})])
    with pytest.raises(ClockSkew, match="would not be the newest"):
        Writer(lake).put_problems([make.problem(prompt="changed")])


def test_an_episode_that_came_with_two_payloads_is_not_trained_on(lake, make):
    writer = Writer(lake)
    writer.append("problems", [make.problem()])
    writer.append("model_versions", [make.version(1)])
    make.group([True, False, True, False]).land(lake)
    with pytest.raises(DuplicateEpisode):
        make.batch(sample=0, calls=[make.call([1, 2, 3], [4, 9])]).land(lake)
    label(lake, "search@2")
    chosen = select(lake, Selection(objective="grpo", rubrics=["search@2"], filter="grpo", policy_version=1))
    assert (chosen.episodes, chosen.reasons) == (3, {"disputed": 1})
