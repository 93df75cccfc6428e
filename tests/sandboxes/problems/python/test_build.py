import json
from collections import Counter
from fractions import Fraction

import pytest

from sandboxes.problems.python import build as building
from sandboxes.problems.python.templates import TEMPLATES
from sandboxes.problems.python.templates.base import Draft, Template


@pytest.fixture(scope="module")
def problems():
    return building.build()


def test_there_are_hundreds_all_different_in_either_split(problems):
    assert len(problems) >= 200
    assert (
        len({problem.prompt for problem in problems})
        == len({problem.problem_id for problem in problems})
        == len(problems)
    )
    splits = Counter(problem.split for problem in problems)
    assert splits["eval"] >= 100 and splits["train"] >= 200


def test_a_template_belongs_to_one_split_and_has_a_difficulty(problems):
    splits = {(json.loads(problem.spec)["template"], problem.split) for problem in problems}
    assert len(splits) == len({template for template, _ in splits}) == len(TEMPLATES)
    assert len({problem.difficulty for problem in problems}) >= 5


def test_the_same_call_gives_the_same_problems_and_another_seed_others(problems):
    few = building.build(per_template=2)
    assert [p.content for p in few] == [p.content for p in building.build(per_template=2)]
    assert {p.content for p in few} <= {p.content for p in problems}
    others = {p.prompt for p in building.build(per_template=2, seed=1)}
    assert len({p.prompt for p in few} - others) > len(few) / 2


def test_answers_cannot_be_guessed_by_one_number(problems):
    [(_, most)] = Counter(json.loads(problem.spec)["answer"] for problem in problems).most_common(1)
    assert most <= len(problems) * 0.03


def test_a_template_whose_code_disagrees_with_its_answer_gives_no_problem():
    def wrong(draw):
        return Draft(f"How much is {draw.randint(2, 99)} plus one?", Fraction(17_000), ("print(3)",))

    with pytest.raises(RuntimeError, match="made-up"):
        list(building._of(Template("made-up", "train", 0.1, wrong), 1, 0))


def test_templates_are_proved_where_prints_go_to_a_log(problems, monkeypatch):
    """As in a flow of Prefect that logs what it prints: only a print to a file of its own gets there."""
    usual = print
    monkeypatch.setattr("builtins.print", lambda *said, file=None, **how: file and usual(*said, file=file, **how))
    assert {p.content for p in building.build(per_template=1)} <= {p.content for p in problems}
