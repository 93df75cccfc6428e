"""Every named query answers its question on a lake in which there is something to answer."""

from datetime import timedelta

import pytest

from lakehouse import connect
from lakehouse.query.named import UnknownQuery, queries, run_named
from lakehouse.query.relations import relations
from lakehouse.records import GateDecision, Review, Reward, TrainingSet, dumps, group_id
from lakehouse.schema import TABLES
from lakehouse.write import Writer

NAMES = [known.name for known in queries()]


@pytest.fixture(scope="module")
def filled(tmp_path_factory, make):
    """Two versions on problems of one kind: version 2 lost `lost`, won `won`, and cheats."""
    lake = str(tmp_path_factory.mktemp("named") / "lake")
    writer = Writer(lake)
    at = make.problem().created_at
    outcomes = {  # problem -> outcomes by version
        "lost": {1: [1, 1], 2: [0, 0]},
        "won": {1: [0, 0], 2: [1, 0]},
        "hard": {1: [0, 0], 2: [0, 0]},
        "easy": {2: [1, 1]},
    }
    problems = [make.problem(name, title=name) for name in outcomes]
    writer.append("problems", problems)
    batch, rewards, dispatches = None, [], []
    for problem, by_version in outcomes.items():
        for version, results in by_version.items():
            for sample, outcome in enumerate(results):
                run = f"run-{version}"
                call = make.call([1, 2], [4, 5], logprobs=[-0.1 * version, -0.001], weight_versions=[version, version])
                if problem == "won" and version == 2:
                    call = call.model_copy(update={"weight_versions": [1, 2]})
                one = make.batch(problem, sample, run=run, calls=[call], match=bool(outcome), model_version=version)
                batch = one if batch is None else batch + one
                dispatches.append(make.dispatch(problem, sample, run=run, loop_id="L" if version == 2 else None))
                for rubric_version in (1, 2):
                    judged = float(outcome if rubric_version == 2 else 1)
                    rewards.append(
                        Reward(
                            episode_id=one.episodes[0].episode_id, rubric="search", rubric_version=rubric_version,
                            outcome=judged, reward=judged, status="scored", components="{}", labelled_at=at,
                        )
                    )  # fmt: skip
    batch += make.batch("new", 0, run="held-out", purpose="eval:round-1", split="eval", model_version=2)
    held_out = batch.episodes[-1].episode_id
    rewards.append(rewards[0].model_copy(update={"episode_id": held_out}))
    own = {"episode_id": held_out, "attempt_id": "a0"}
    batch.evidence.append(make.evidence("scan", {"counts": {"runner": 1}}, **own))
    batch += make.batch(
        "lost", 7, run="run-2", status="infra_error", error="the engine was gone\nat ...", match=None, calls=[]
    )
    batch.actions[0] = batch.actions[0].model_copy(update={"is_error": True, "observation": "No such title."})
    batch.land(lake)
    writer.append("dispatches", [*dispatches, make.dispatch("hard", 9, run="run-2", loop_id="L")])
    writer.append("rewards", rewards)
    first = batch.episodes[0]
    review = Review(
        review_id="rv", episode_id=first.episode_id, reviewer="p", queue="asked", outcome=0.0, comment=None,
        reviewed_at=at + timedelta(days=1),
    )  # fmt: skip
    writer.append("reviews", [review])
    ledger = {"sampled": 10, "trained": 4, "masked": {"redacted": 1}, "dropped": {"stale": 3, "unlabelled": 2}}
    chosen = TrainingSet(
        training_set_id="ts", objective="grpo", rubrics=["search@2"], filter="grpo", table_versions="{}", policy_version=1,
        n_rows=1, n_episodes=1, n_trained_tokens=2, ledger=dumps(ledger), digest="d", created_at=at, loop_id="L", loop_step=0,
        selection=dumps({"asked": {"group_ids": [group_id("run-2", "won")]}}),
    )  # fmt: skip
    writer.append("training_sets", [chosen])
    writer.append("training_rows", [make_row(first.episode_id)])
    made = make.version(2, 1).model_copy(update={"training_set_id": "ts"})
    writer.append("model_versions", [make.version(1), made])
    writer.append("gates", [decision(at)])
    return lake


def decision(at):
    values = {"success_difference": -0.5, "success_difference_low": -0.8, "success_difference_high": -0.1, "pairs": 8.0}
    rules = [
        {"rule": "success_difference_high >= 0", "scope": "total", "value": -0.1, "keeps": False, "note": ""},
        {"rule": "tainted <= 0", "scope": "total", "value": 0.0, "keeps": True, "note": ""},
        {"rule": "agreement <= 0.05", "scope": "total", "value": None, "keeps": None, "note": "not measured"},
    ]
    return GateDecision(
        gate_id="gt", name="toy", candidate=2, champion=1, policy_digest="d", policy="", passed=False, reasons=["is worse"],
        measurements=dumps({"values": {"total": values}, "rules": rules}), decided_at=at, decided_by="alice",
    )  # fmt: skip


def make_row(episode_id):
    from lakehouse.records import TrainingRow

    return TrainingRow(
        training_set_id="ts", row_index=0, episode_id=episode_id, group_id="g", problem_kind="search",
        input_ids=[1, 2, 4, 5], loss_mask=[0, 0, 1, 1], logprobs=[0.0, 0.0, -0.1, -0.1], weight_versions=[-1, -1, 1, 1],
        reward=1.0, advantage=0.7,
    )  # fmt: skip


@pytest.fixture(scope="module")
def asked(filled):
    with connect(filled) as connection:
        yield lambda name, **values: run_named(connection, name, values).to_dicts()


def test_there_are_twenty_questions_and_none_has_the_name_of_a_view():
    assert len(NAMES) >= 20
    assert not {f"main.{name}" for name in NAMES} & {known.name for known in relations()}
    assert not set(NAMES) & TABLES.keys()


@pytest.mark.parametrize("name", NAMES)
def test_a_question_has_an_answer(asked, name):
    values = {"tries": "2"} if name in ("never_solved", "always_solved") else {}
    rows = asked(name, **values)
    assert rows
    assert not [key for key in rows[0] if all(row[key] is None for row in rows)]  # a column that never says anything


def test_the_worst_regression_comes_first(asked):
    rows = asked("worst_regressions")
    told = [(row["problem_id"], row["baseline"], row["candidate"], row["change"]) for row in rows]
    assert told == [("lost", 1, 2, -0.5), ("hard", 1, 2, 0.0), ("won", 1, 2, 0.5)]
    back = asked("worst_regressions", baseline="2", candidate="1")
    assert back[0]["problem_id"] == "won"
    assert asked("worst_regressions", kind="swe") == []


def test_every_token_has_one_fate(asked):
    rows = asked("where_tokens_went")
    assert {(row["fate"], row["reason"]): row["tokens"] for row in rows} == {
        ("trained", None): 4,
        ("masked", "redacted"): 1,
        ("dropped", "stale"): 3,
        ("dropped", "unlabelled"): 2,
    }
    assert sum(row["share"] for row in rows) == pytest.approx(1)


def test_a_loop_says_what_its_steps_consumed_and_what_is_left_to_play(asked):
    (step,) = asked("loop_steps")
    told = [step[name] for name in ("step", "groups_consumed", "stale_tokens", "max_staleness", "version")]
    assert told == [1, 1, 3, 0, 2]
    (loop,) = asked("loop_groups")
    counts = {
        name: loop[name] for name in ("begun", "settled", "consumed", "waiting", "failed", "left_to_play", "steps")
    }
    assert counts == {
        "begun": 4, "settled": 3, "consumed": 1, "waiting": 2, "failed": 0, "left_to_play": 1, "steps": 1,
    }  # fmt: skip


def test_entropy_is_the_mean_of_the_negative_log_probs(asked):
    rows = {row["model_version"]: row for row in asked("entropy_over_time") if row["day"] is not None}
    assert rows[1]["entropy_estimate"] == pytest.approx((0.1 + 0.001) / 2, abs=1e-3)
    assert rows[1]["near_certain"] == 0.5


def test_disagreement_is_counted_by_pair(asked):
    (row,) = asked("rubric_disagreement")
    assert (row["rubric"], row["against"], row["harsher"]) == ("search@1", "search@2", 0)
    assert row["differ"] == row["kinder"] > 0


def test_a_dispatch_that_has_not_landed_is_left(asked):
    rows = {row["run_id"]: row for row in asked("run_progress")}
    assert rows["run-2"]["remaining"] == 1
    assert rows["run-1"]["remaining"] == 0


def test_a_version_that_cheats_is_first(asked):
    first = asked("hack_rate")[0]
    assert (first["model_version"], first["purpose"], first["rate"]) == (2, "eval:round-1", 1.0)
    assert first["detectors"] == ["runner_internals"]


def test_decisions_of_the_gate_are_told_with_their_difference_and_the_rules_that_refused(asked):
    (row,) = asked("gate_decisions", version="2")
    assert (row["passed"], row["difference"], row["pairs"], row["reasons"]) == (False, -0.5, 8, "is worse")
    assert asked("gate_decisions", version="1") == []
    (broken,) = asked("broken_rules")
    assert (broken["rule"], broken["refused"], broken["newest_value"]) == ("success_difference_high >= 0", 1, -0.1)


def test_a_query_or_parameter_that_is_not_there_is_told(filled):
    with connect(filled) as connection:
        with pytest.raises(UnknownQuery, match="no query 'nope'; there are always_solved, "):
            run_named(connection, "nope")
        with pytest.raises(UnknownQuery, match="has no parameter 'kin'; there is baseline, candidate, kind"):
            run_named(connection, "worst_regressions", {"kin": "swe"})


def test_a_parameter_is_a_value_and_never_sql(asked):
    assert asked("failures", run="x' or '1'='1") == []


def test_parameters_do_not_outlive_their_query(asked):
    assert asked("failures", run="nothing") == []
    assert asked("failures")
