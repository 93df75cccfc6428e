import json

import pytest

from sandboxes.backends.scripted import ScriptedBackend
from sandboxes.problems.base import EnvironmentFailure, Fact
from sandboxes.problems.external import KIND
from sandboxes.problems.foreign import BadRow, Terms
from sandboxes.problems.imports import read

ROW = {"problem_id": "shop/1", "title": "A broken lamp", "prompt": "Help.", "oracle_passed": True, "null_failed": True}
TERMS = Terms(name="shop", split="train", licence="CC0-1.0", allowed_uses=("training",))


@pytest.fixture
def rows(tmp_path):
    def write(*rows):
        path = tmp_path / "problems.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return read("external", path, TERMS)

    return write


def test_a_row_becomes_a_problem_whose_id_is_the_sessions_task(rows):
    one, two = rows(ROW, ROW | {"problem_id": "shop/2", "split": "eval", "difficulty": 0.9, "null_failed": False})
    assert (one.problem_id, one.kind, one.split, one.difficulty, one.licence) == (
        "shop/1",
        "external",
        "train",
        0.5,
        "CC0-1.0",
    )
    assert (two.split, two.difficulty, two.oracle_passed, two.null_failed) == ("eval", 0.9, True, False)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"title": ""}, "title"),
        ({"oracle_passed": "yes"}, "oracle_passed"),
        ({"null_failed": None}, "null_failed"),
        ({"difficulty": 2}, "difficulty"),
        ({"difficulty": True}, "difficulty"),
        ({"split": "test"}, "split"),
        ({"reward": 1.0}, "'reward' is no column"),
    ],
)
def test_a_row_that_is_none_is_refused_by_number_and_column(rows, wrong, told):
    with pytest.raises(BadRow, match=f"row 1 of .*{told}"):
        rows(ROW, ROW | wrong | {"problem_id": "shop/2"})


async def test_nothing_here_plays_them(rows):
    [problem] = rows(ROW)
    with pytest.raises(EnvironmentFailure, match="lakeloop ingest"):
        await KIND.open(problem, ScriptedBackend())


def test_full_marks_are_a_last_reward_of_1_for_the_whole():
    def given(*rewards):
        return [Fact("rewards", {"rows": [{"call": call, "reward": reward} for call, reward in rewards]}, "p")]

    assert KIND.solved(given((None, 0.0), (None, 1.0)))
    assert not KIND.solved(given((None, 1.0), (None, 0.0)))
    assert not KIND.solved(given(("c", 1.0))) and not KIND.solved([])
