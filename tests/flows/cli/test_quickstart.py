"""What a quickstart says at its end."""

import pytest

from flows.cli import quickstart
from flows.evaluate import Evaluated
from flows.improve import Round
from flows.quickstart import Outcome
from lakehouse.results import Success


@pytest.fixture
def outcome():
    """Three rounds, of which the second found nothing to train on."""

    def evaluated(stage):
        found = Success(problem_kind="search", n=10, solved=5, unscored=0, reward=0.5)
        return Evaluated(run_id=f"eval-{stage}", stage=stage, results=[found])

    made = {"training_set_id": "ts", "rows": 4, "seconds": {}}
    rounds = [
        Round(number=1, version=3, evaluation=evaluated("round-1"), **made),
        Round(number=2, left_out={"zero_variance_group": 8}, seconds={}),
        Round(number=3, version=4, evaluation=evaluated("round-3"), **made),
    ]
    evaluations = [evaluated("base"), evaluated("warm-start"), *(one.evaluation for one in rounds if one.evaluation)]
    runs = ["run-0", "run-1", "run-2", "run-3"]
    return Outcome(versions=[1, 2, 3, 4], run_ids=runs, evaluations=evaluations, rounds=rounds, seconds={})


@pytest.fixture(autouse=True)
def _home(monkeypatch, tmp_path):
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))


def test_the_numbers_list_real_versions_and_the_rounds_passed_over(outcome):
    numbers = quickstart.report(outcome, {"total": 1.0})
    assert (numbers["rounds"], numbers["rounds_passed_over"], numbers["model_versions"]) == (3, [2], [1, 2, 3, 4])
    assert [row["stage"] for row in numbers["eval"]] == ["base", "warm-start", "round-1", "round-3"]


def test_the_table_has_a_line_per_version_and_says_why_a_round_was_passed_over(outcome, tmp_path, capsys):
    numbers = quickstart.report(outcome, {"total": 1.0}) | {"calls": 0, "tokens": 0}
    curve = quickstart.draw_curve(outcome, tmp_path / "curve.png")
    quickstart._print(outcome, numbers, curve)
    said = " ".join(capsys.readouterr().out.split())
    assert "Round 2 trained nothing, no group could be trained on: 8 zero_variance_group" in said
    for stage, version in zip(("base", "warm-start", "round-1", "round-3"), (1, 2, 3, 4), strict=True):
        assert f"{stage} │ {version}" in said
    assert curve.stat().st_size > 1000
