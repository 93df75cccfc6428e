import ast
import random
import re

import pytest

from sandboxes.problems.swe.canaries import plant
from sandboxes.problems.swe.contradict import contradictions

TESTS = b"""
import unittest

LIMIT = 5


def test_sum_of_two():
    assert sum([1, 2]) == 3


def test_text():
    word = "ab" + "c"
    assert word.upper() == "ABC", "upper case"


class TestGroup(unittest.TestCase):
    def test_inside(self):
        self.assertEqual(max(1, LIMIT), 5)
        assert not []


def test_last(): assert LIMIT > 4
"""
FILE = "tests/test_it.py"
KNOWN = [f"{FILE}::{name}" for name in ("test_sum_of_two", "test_text", "TestGroup::test_inside", "test_last")]
SEEDS = range(40)


def planted(seed, **changes):
    given = {"tree": {FILE: TESTS}, "files": [FILE], "repaired": KNOWN[:1], "kept": KNOWN[1:]} | changes
    return plant(*given.values(), random.Random(seed))


def run(source, nodes):
    """What each test of a file does: P or F."""
    namespace = {}
    exec(compile(source, "tests", "exec"), namespace)
    marks = {}
    for node in nodes:
        *group, name = node.split("::")[1:]
        held = namespace[group[0]]() if group else namespace
        try:
            (getattr(held, name) if group else held[name])()
            marks[node] = "P"
        except AssertionError:
            marks[node] = "F"
    return marks


@pytest.mark.parametrize("seed", SEEDS)
def test_what_passed_passes_under_its_new_name_and_every_canary_fails(seed):
    found = planted(seed)
    marks = run(found.files[FILE], found.ids)
    assert [marks[found.runs_as[node]] for node in KNOWN] == ["P"] * 4
    assert KNOWN[0] in found.canaries
    assert {marks[copy] for copies in found.canaries.values() for copy in copies} == {"F"}
    assert found.unmasked(marks) == []


def test_no_name_that_was_seen_is_left_and_no_two_gradings_are_alike():
    first, second = planted(1), planted(2)
    for name in (b"test_sum_of_two", b"test_text", b"test_inside", b"test_last"):
        assert not re.search(rb"\b" + name + rb"\b", first.files[FILE])
    assert first.runs_as != second.runs_as
    assert first.files != second.files


def test_a_report_in_which_everything_passed_is_unmasked():
    found = planted(3)
    assert KNOWN[0] in found.unmasked(dict.fromkeys(found.ids, "P"))
    assert found.unmasked(dict.fromkeys(found.ids, "F")) == []


@pytest.mark.parametrize("mark", ["P", "S", "X", None])
def test_a_canary_that_did_not_fail_beside_a_test_that_passed_is_unmasked(mark):
    found = planted(4)
    outcomes = dict.fromkeys(found.ids, "F") | {found.runs_as[KNOWN[0]]: "P"}
    outcomes[found.canaries[KNOWN[0]][0]] = mark
    assert found.unmasked(outcomes) == [KNOWN[0]]


def test_a_name_that_is_needed_for_something_else_stays():
    source = TESTS + b"\nALIAS = test_text\n"
    found = planted(5, tree={FILE: source})
    assert found.runs_as[KNOWN[1]] == KNOWN[1]
    assert found.runs_as[KNOWN[0]] != KNOWN[0]


def test_cases_keep_their_parameters():
    source = b"import pytest\n@pytest.mark.parametrize('x', [1, 2])\ndef test_x(x):\n    assert x == abs(x)\n"
    nodes = [f"{FILE}::test_x[{x}]" for x in (1, 2)]
    found = planted(6, tree={FILE: source}, repaired=nodes, kept=[])
    assert all(found.runs_as[node].endswith(node[-3:]) for node in nodes)
    assert all(copy.endswith(node[-3:]) for node in nodes for copy in found.canaries[node])


def test_tests_that_are_inherited_get_names_and_canaries_where_they_are_defined():
    mixin = b"class Mixin:\n    def test_shared(self):\n        assert self.limit == 5\n"
    source = b"from tests import Mixin\nclass TestOwn(Mixin):\n    limit = 5\n"
    node = f"{FILE}::TestOwn::test_shared"
    tree = {FILE: source, "tests/__init__.py": mixin}
    found = plant(tree, [FILE], [node], [], random.Random(7), support=["tests/__init__.py"])
    assert b"test_shared" not in found.files["tests/__init__.py"]
    assert found.canaries[node] and all("::TestOwn::" in copy for copy in found.canaries[node])


def test_a_file_whose_tests_cannot_be_copied_gets_one_that_fails():
    source = b"def test_made():\n    return None\n"
    node = f"{FILE}::test_made"
    found = planted(8, tree={FILE: source}, repaired=[node], kept=[])
    marks = run(found.files[FILE], found.ids)
    assert marks[found.runs_as[node]] == "P" and [marks[copy] for copy in found.canaries[node]] == ["F"]


def ways(body):
    source = f"def test():\n    {body}\n".encode()
    lines = [0, 12, len(source)]
    found = contradictions(ast.parse(source).body[0], source, lines, random.Random(0))
    return {(source[: one.start] + one.text + source[one.end :]).decode().split("\n    ")[1].strip() for one in found}


@pytest.mark.parametrize(
    "body, expected",
    [
        ("assert f(1) == g(2)", {"assert f(1) != g(2)", "assert [f(1)] == g(2)", "assert f(1) == [g(2)]"}),
        ("assert f(1) is True", {"assert f(1) is not True"}),
        ("assert not f(1)", {"assert (f(1))"}),
        ("assert f(1) and g(2)", {"assert not (f(1) and g(2))"}),
        ("assert 1 < f(1)", {"assert 1 >= f(1)"}),
        ("self.assertIn(1, f(1))", {"self.assertNotIn(1, f(1))"}),
        ("assert_equal(f(1), g(2))", {"assert_equal([f(1)], g(2))", "assert_equal(f(1), [g(2)])"}),
    ],
)
def test_an_assertion_is_turned_round_or_given_a_wrong_value(body, expected):
    assert ways(body) == expected


@pytest.mark.parametrize(
    "body",
    [
        "f(1)",
        "return None; assert f(1)",
        "[f(x) for x in y]; return",
        "assert_equal(*both)",
    ],
)
def test_what_a_passing_run_might_not_reach_is_left_alone(body):
    assert ways(body) == set()


@pytest.mark.parametrize(
    "rest, touched",
    [
        ("module.LIMIT = before", False),  # what put it back would be left out
        ("del registry['a']", False),
        ("unregister('a')", False),
        ("self.assertTrue(own.pop()); shown = 1; print(shown)", True),
        ("made = [3]; made[0] = 4; made.clear()", True),
    ],
)
def test_a_copy_never_leaves_out_what_puts_things_back(rest, touched):
    assert bool(ways(f"own = [1]; assert own; {rest}")) is touched


POLLUTED = b"""\
import unittest

LIMIT = [5]

class TestBoth(unittest.TestCase):
    def test_a_first(self):
        before = LIMIT[0]
        self.assertEqual(LIMIT[0], 5)
        LIMIT[0] = 6
        self.assertEqual(LIMIT[0], 6)
        LIMIT[0] = before

    def test_b_then(self):
        self.assertEqual(LIMIT[0], 5)
        LIMIT[0] = 7

    def test_c_last(self):
        self.assertEqual(LIMIT[0], 7)
"""


@pytest.mark.parametrize("seed", range(12))
def test_tests_that_pass_in_their_own_order_only_are_run_in_it(seed):
    """unittest runs a class's tests in alphabetical order. The second and third are no good; they passed all the same."""
    nodes = [f"{FILE}::TestBoth::{name}" for name in ("test_a_first", "test_b_then", "test_c_last")]
    found = planted(seed, tree={FILE: POLLUTED}, repaired=nodes[2:], kept=nodes[:2])
    assert found.canaries
    marks = run(found.files[FILE], sorted(found.ids))
    assert [marks[found.runs_as[node]] for node in nodes] == ["P", "P", "P"]
