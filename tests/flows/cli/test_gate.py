"""`gate` and `offpolicy`: what is wrong is said before anything is started."""

import pytest

from flows.gate import gate
from lakehouse.evaluation.exam import Exam
from sandboxes.prompts import PromptError


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (
            ["gate", "2", "--policy", "lax"],
            1,
            "error: no gate policy 'lax': name a file NAME.toml, or one of those shipped",
        ),
        (["gate", "2", "--policy", "mine.toml"], 1, "error: no gate policy 'mine.toml'"),
        (["gate", "two"], 2, "'two' is no version: write a number, or tiny@NUMBER"),
        (["gate", "other@2"], 2, "'other@2' is no version"),
        (["gate", "0"], 2, "'0' is no version"),
        (["gate", "2", "--champion", "x"], 2, "'x' is no version"),
        (
            ["gate", "2", "--exam", '{"problem": {}}'],
            2,
            "problem: Extra inputs are not permitted. There are problems, samples",
        ),
        (["gate", "2", "--exam", "{"], 2, "--exam: Invalid JSON"),
        (["gate", "2", "--exam", '{"samples": 0}'], 2, "samples: Input should be greater than or equal to 1"),
        (["offpolicy", "2"], 2, "Missing option '--run-id'"),
        (["offpolicy", "2", "--run-id", "r", "--of", "luck"], 2, "'luck' is not one of 'success', 'reward'"),
        (["offpolicy", "2", "--run-id", "r", "--min-effective-samples", "0"], 2, "min-effective-samples"),
        (["gate", "tiny@2"], 1, "error: no Prefect server of"),
        (["offpolicy", "2", "--run-id", "r"], 1, "error: no Prefect server of"),
    ],
)
def test_what_is_wrong_is_said_in_words(lakeloop, arguments, status, said):
    ended = lakeloop(*arguments)
    assert ended.status == status
    assert said in ended.said.replace(" │ │ ", " ")
    assert "Traceback" not in ended.said


def test_a_policy_of_ones_own_with_an_unknown_metric_is_named_before_the_stack_is_asked(lakeloop, tmp_path):
    policy = tmp_path / "mine.toml"
    policy.write_text('when_refused = "ask"\n[[rules]]\nmetric = "luck"\noperator = ">="\nbound = 1\n')
    ended = lakeloop("gate", "2", "--policy", str(policy))
    assert ended.status == 1
    assert "rule 1: no metric 'luck'; there are success, reward," in ended.said


async def test_prompts_that_cannot_be_used_are_refused_before_an_engine_is_swapped_for_them(tmp_path, monkeypatch):
    (tmp_path / "search.user.txt").write_text("Answer $this.")
    monkeypatch.chdir(tmp_path.parent)
    exam = Exam(prompts=tmp_path.name)
    assert exam.prompts == tmp_path  # as a run elsewhere finds it
    with pytest.raises(PromptError, match=r"search.user.txt has the placeholder \$this"):
        await gate.fn(2, exam=exam)
