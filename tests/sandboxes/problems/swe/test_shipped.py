import re
from collections import Counter

import pytest

from sandboxes.problems.swe import KIND, load, text
from sandboxes.problems.swe.shipped import PROBLEMS
from sandboxes.problems.swe.sites import KINDS
from sandboxes.problems.swe.spec import DATA, read_spec


@pytest.fixture(scope="module")
def problems():
    return load()


def test_there_are_enough_problems_of_each_kind_and_split(problems):
    pairs = [problem for problem in problems if read_spec(problem).bug is None]
    count = Counter((problem.split, read_spec(problem).hint) for problem in problems)
    assert len(pairs) >= 4
    assert count["train", 3] >= 80 and count["train", 4] >= 100
    assert count["eval", 3] >= 24 and count["eval", 4] >= 48
    assert len({problem.source.split("==")[0] for problem in problems}) >= 8
    assert len(problems) >= 600
    assert sum(bool(read_spec(problem).also) for problem in problems) >= 125
    assert {bug.kind for problem in problems for bug in read_spec(problem).bugs} == set(KINDS)


def test_ids_are_unique_and_every_problem_passed_both_gates(problems):
    assert len({problem.problem_id for problem in problems}) == len(problems)
    assert all(problem.oracle_passed and problem.null_failed for problem in problems)


def test_no_statement_names_a_test(problems):
    for problem in problems:
        functions = {node.partition("[")[0].rpartition("::")[2] for node in read_spec(problem).fail_to_pass}
        assert not functions & set(re.findall(r"\w+", problem.prompt)), problem.problem_id


def test_no_two_problems_have_the_same_statement(problems):
    told = Counter(problem.prompt for problem in problems)
    assert [prompt for prompt, number in told.items() if number > 1] == []


def test_no_package_is_in_both_splits(problems):
    package = {split: {p.source.split("==")[0] for p in problems if p.split == split} for split in ("train", "eval")}
    assert not package["train"] & package["eval"]


def test_procedural_prompts_are_short_and_hold_the_broken_line_where_they_promise_it(problems):
    for problem in problems:
        spec = read_spec(problem)
        if spec.bug is None:
            continue
        assert len(problem.prompt) + len(text.SYSTEM) <= text.BUDGET
        shown = dict(line.split("| ", 1) for line in problem.prompt.splitlines() if line.split("| ")[0].isdigit())
        assert (str(spec.bug.line) in shown) == (spec.hint >= 3)
        assert len(shown) == 1 or spec.hint < 4
        assert problem.prompt.count("\nFails: ") <= len(spec.bugs)
        if spec.hint >= 3:
            assert shown[str(spec.bug.line)].count(spec.repair[0].old) == 1


def test_the_bugs_of_a_combination_are_problems_of_their_own_in_different_functions(problems):
    single = {read_spec(problem).bug: problem for problem in problems if not read_spec(problem).also}
    for problem in problems:
        bugs = read_spec(problem).bugs
        if len(bugs) > 1:
            assert len({(bug.path, bug.function) for bug in bugs}) == len(bugs) <= 3
            assert all(single[bug].split == problem.split for bug in bugs)
            assert problem.difficulty > min(single[bug].difficulty for bug in bugs)


def test_a_problem_that_shows_the_faulty_line_alone_differs_from_a_validated_one_in_its_statement_only(problems):
    known = {problem.problem_id: problem for problem in problems}
    for problem in problems:
        spec = read_spec(problem)
        if spec.hint != 4:
            continue
        validated = known[problem.problem_id.removesuffix("-line")]
        assert validated.problem_id != problem.problem_id and validated.split == problem.split
        assert read_spec(validated).model_copy(update={"hint": 4}) == spec
        assert problem.prompt.splitlines()[1] == validated.prompt.splitlines()[1]
        assert problem.difficulty < validated.difficulty


def test_the_expected_tests_of_every_problem_are_known(problems):
    for problem in problems:
        spec = read_spec(problem)
        assert 1 <= len(spec.fail_to_pass) <= 10 * (len(spec.bugs) or 4)
        assert spec.pass_to_pass
        assert not set(spec.fail_to_pass) & set(spec.pass_to_pass)


def test_the_expert_edits_and_then_submits(problems):
    for problem in problems:
        calls = KIND.expert(problem)
        assert [call.name for call in calls] == ["edit"] * (len(calls) - 1) + ["submit"]
        assert len(calls) == 1 + len(read_spec(problem).repair)
        assert len(calls) == 1 + len(read_spec(problem).bugs) or read_spec(problem).bug is None


def test_the_shipped_set_is_small():
    assert sum(path.stat().st_size for path in DATA.iterdir()) < 2_000_000
    assert (DATA / PROBLEMS).is_file()
