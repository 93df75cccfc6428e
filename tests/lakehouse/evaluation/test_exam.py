"""An exam that was sat is found again; one that was lost to infrastructure is sat anew."""

import pytest

from lakehouse.evaluation.exam import Exam, sat
from lakehouse.planning import NotEnoughProblems
from lakehouse.records import Status
from lakehouse.write import Writer

DRAWN = "0123456789abcdef"


@pytest.fixture
def problems(lake, make):
    Writer(lake).put_problems([make.problem(f"search/{n}", split="eval") for n in range(6)])
    return lake


def test_the_same_exam_is_the_same_draw_and_everything_that_shapes_episodes_is_in_it(problems, make):
    exam = Exam(problems={"search": 3})
    drawn = exam.drawn(problems)
    assert Exam(problems={"search": 3}).drawn(problems) == drawn
    others = [
        {"seed": 1},
        {"samples": 2},
        {"temperature": 0.5},
        {"max_tokens": 7},
        {"max_turns": 7},
        {"problems": {"search": 2}},
    ]
    assert len({drawn, *(exam.model_copy(update=other).drawn(problems) for other in others)}) == 7
    Writer(problems).put_problems([make.problem(f"search/{n}", split="eval", title="other") for n in range(6)])
    assert exam.drawn(problems) != drawn  # another edition is another problem


def test_prompts_are_part_of_an_exam_by_what_they_say(problems, tmp_path):
    def drawn(name, text):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "search.system.txt").write_text(text)
        return Exam(problems={"search": 3}, prompts=folder).drawn(problems)

    usual = Exam(problems={"search": 3}).drawn(problems)
    assert drawn("here", "Answer.") == drawn("there", "Answer.")
    assert len({usual, drawn("here", "Answer."), drawn("here", "Answer!")}) == 3


def test_more_problems_than_there_are_is_an_error(problems):
    with pytest.raises(NotEnoughProblems, match="6 are in the lake"):
        Exam(problems={"search": 7}).drawn(problems)


def test_runs_are_by_version_and_draw(problems):
    ids = {
        sat(problems, name, version, drawn).run_id
        for name in ("a", "b")
        for version in (1, 2)
        for drawn in (DRAWN, "f")
    }
    assert len(ids) == 8
    assert sat(problems, "a", 1, DRAWN) == sat(problems, "a", 1, DRAWN)


def land(lake, make, run_id, statuses, planned):
    made = [make.dispatch("p", sample, run=run_id) for sample in range(planned)]
    Writer(lake).append("dispatches", made)
    for sample, status in enumerate(statuses):
        make.batch("p", sample, run=run_id, status=status, match=None).land(lake)


def test_an_exam_is_complete_once_every_episode_has_landed(lake, make):
    first = sat(lake, "toy", 1, DRAWN)
    assert (first.episodes, first.complete) == (0, False)
    land(lake, make, first.run_id, [Status.OK] * 3, 4)
    assert sat(lake, "toy", 1, DRAWN) == first.model_copy(update={"episodes": 4})
    make.batch("p", 3, run=first.run_id).land(lake)
    assert sat(lake, "toy", 1, DRAWN).complete


@pytest.mark.parametrize(("lost", "anew"), [(1, False), (2, True)])
def test_one_that_lost_more_than_a_tenth_to_infrastructure_is_sat_anew(lake, make, lost, anew):
    first = sat(lake, "toy", 1, DRAWN)
    land(lake, make, first.run_id, [Status.INFRA_ERROR] * lost + [Status.OK] * (12 - lost), 12)
    second = sat(lake, "toy", 1, DRAWN)
    assert (second.run_id != first.run_id, second.complete) == (anew, not anew)


def test_what_the_policy_may_have_done_is_no_loss(lake, make):
    first = sat(lake, "toy", 1, DRAWN)
    land(lake, make, first.run_id, [Status.TIMEOUT, Status.ENV_ERROR, Status.AGENT_ERROR, Status.MODEL_ERROR], 4)
    assert sat(lake, "toy", 1, DRAWN) == first.model_copy(update={"episodes": 4, "complete": True})
