import ast
import random
import sysconfig
from pathlib import Path

import pytest

from sandboxes.problems.swe.mutate import apply, mutations
from sandboxes.problems.swe.sites import KINDS

STDLIB = Path(sysconfig.get_path("stdlib"))
MODULES = ("argparse.py", "datetime.py", "fractions.py", "textwrap.py", "statistics.py", "heapq.py")


def kinds(body):
    source = f"def f(a, b, items):\n    {body}\n"
    return {(m.kind, apply(source, m).split("\n")[1].strip()) for m in mutations(source)}


@pytest.mark.parametrize("module", MODULES)
def test_the_mutated_line_holds_the_new_piece_once_and_putting_the_old_one_back_restores_the_source(module):
    source = (STDLIB / module).read_text()
    found = mutations(source)
    assert len(found) > 50
    for mutation in random.Random(1).sample(found, min(300, len(found))):
        mutated = apply(source, mutation)
        lines = mutated.split("\n")
        assert lines[mutation.line - 1].count(mutation.new) == 1
        lines[mutation.line - 1] = lines[mutation.line - 1].replace(mutation.new, mutation.old)
        assert "\n".join(lines) == source


@pytest.mark.parametrize("module", MODULES)
def test_a_mutated_module_is_valid_python_with_another_meaning(module):
    source = (STDLIB / module).read_text()
    meaning = ast.dump(ast.parse(source))
    for mutation in random.Random(0).sample(mutations(source), 25):
        assert ast.dump(ast.parse(apply(source, mutation))) != meaning


@pytest.mark.parametrize(
    "body, expected",
    [
        ("return a < b", ("compare", "return a <= b")),
        ("return a == b", ("compare", "return a != b")),
        ("return a is not None", ("compare", "return a is None")),
        ("return (a) + b", ("arithmetic", "return (a) - b")),
        ("a += 1", ("arithmetic", "a -= 1")),
        ("return a and b", ("boolean", "return a or b")),
        ("return a and b", ("guard", "return a")),
        ("return not a", ("not", "return a")),
        ("return a[3]", ("constant", "return a[2]")),
        ("return items[1:]", ("slice", "return items[:1]")),
        ("return max(items)", ("name", "return min(items)")),
        ("return f(a, b)", ("arguments", "return f(b, a)")),
        ("return a", ("return", "return None")),
        ("if a: pass", ("negated", "if not a: pass")),
        ("return a < b < items", ("compare", "return a < b <= items")),
        ("return b", ("variable", "return a")),
        ("return items[0]", ("index", "return items[-1]")),
        ("return a if b else items", ("branch", "return items if b else a")),
        ("return list(items)", ("conversion", "return items")),
        ("return f(a, key=b)", ("keyword", "return f(a)")),
        ("items.sort()", ("statement", "pass")),
        ("items[0] = a", ("statement", "pass")),
        ("a += b", ("assign", "a = b")),
        ("raise ValueError(a)", ("raise", "pass")),
        ("while a: a -= 1", ("loop", "if a: a -= 1")),
    ],
)
def test_each_kind_of_mutation_is_found(body, expected):
    assert expected in kinds(body)


@pytest.mark.parametrize(
    "before, kind, after",
    [
        ("def f(a, deep=False):", "default", "def f(a, deep=True):"),
        ("        total = a + item", "early", "        return a + item"),
        ("        elif item:", "branch", "        if item:"),
        ("            continue", "loop", "            break"),
        ("    except KeyError:", "except", "    except IndexError:"),
        ("    except (OSError, TypeError):", "except", "    except (OSError,):"),
    ],
)
def test_kinds_that_need_more_than_one_line_around_them_are_found(before, kind, after):
    source = """def f(a, deep=False):
    for item in a:
        total = a + item
        if deep:
            continue
        elif item:
            break
    try:
        return total
    except KeyError:
        return 0
    except (OSError, TypeError):
        return 1
"""
    mutated = source.replace(before, after, 1)
    assert (kind, mutated) in {(m.kind, apply(source, m)) for m in mutations(source)}


def test_a_wrong_variable_is_one_that_is_bound_there():
    source = "def f(self, a):\n    b = a\n    return b\n    late = 1\n"
    assert {apply(source, m).split("\n")[2] for m in mutations(source, ["variable"])} == {"    return a"}


def test_only_the_wanted_kinds_are_given():
    source = (STDLIB / MODULES[0]).read_text()
    assert {m.kind for m in mutations(source, ["not", "loop"])} == {"not", "loop"}
    assert {m.kind for module in MODULES for m in mutations((STDLIB / module).read_text())} == set(KINDS)


def test_strings_docstrings_and_module_level_code_are_left_alone():
    source = 'LIMIT = 3 < 4\n\n\ndef f(a):\n    """1 < 2"""\n    return "%s < 1" % a\n'
    assert [m.kind for m in mutations(source)] == ["return"]


def test_columns_count_characters_where_a_line_is_not_ascii():
    source = "def f(a):\n    return 'öäü' if a < 1 else 'ß'\n"
    compare = next(m for m in mutations(source) if m.kind == "compare" and m.new.strip() == "<=")
    assert apply(source, compare) == source.replace("<", "<=")


def test_a_mutation_names_the_function_it_is_in_and_its_lines():
    source = "class A:\n    def f(self, a):\n        return a < 1\n"
    assert {(m.function, m.first_line, m.last_line) for m in mutations(source)} == {("A.f", 2, 3)}


def test_applying_to_another_source_is_refused():
    source = "def f(a):\n    return a < 1\n"
    with pytest.raises(ValueError, match="another version"):
        apply("def f(a):\n    return 1\n", mutations(source)[0])


def test_what_is_not_python_has_no_mutations():
    assert mutations("def f(:") == []
