import pytest

from sandboxes.problems.swe import text

SOURCE = "\n".join(f"line number {n}" for n in range(1, 101))


@pytest.mark.parametrize("line", [1, 2, 50, 99, 100])
@pytest.mark.parametrize("seed", ["a", "b", "c"])
def test_a_window_holds_the_line_and_keeps_to_its_bounds(line, seed):
    lines = text.window(SOURCE, line, first=1, last=100, seed=seed, budget=10_000)
    assert len(lines) == text.WINDOW
    assert line in [number for number, _ in lines]
    assert all(code == f"line number {number}" for number, code in lines)


def test_a_window_shrinks_until_it_fits_its_budget():
    lines = text.window(SOURCE, 50, first=1, last=100, seed="a", budget=80)
    assert 50 in [number for number, _ in lines]
    assert 0 < len(text.numbered(lines)) <= 80


def test_the_line_lies_at_different_places_for_different_seeds():
    places = {text.window(SOURCE, 50, first=1, last=100, seed=str(n), budget=10_000)[0][0] for n in range(30)}
    assert len(places) > 5


@pytest.mark.parametrize("hint", [0, 1, 2, 3, 4])
def test_a_hint_tells_what_its_level_allows_and_no_more(hint):
    told = text.prompt("pkg", "Fails: x", hint=hint, path="pkg/a.py", function="f", lines=[(7, "return 1")])
    assert ("pkg/a.py" in told, " f" in told, "7| return 1" in told) == (hint >= 1, hint >= 2, hint >= 3)


def test_behaviour_is_one_line_of_bounded_length():
    told = text.behaviour("assert f(\n    1\n) == 2", "x" * 500)
    assert "\n" not in told
    assert len(told) < 230


def test_an_object_made_in_a_test_does_not_tell_the_tests_name_or_an_address():
    got = "not <function test_curry.<locals>.foo at 0x7fa89ba50b...y.<locals>.foo at 0x7fa89ba50b80>"
    assert text.behaviour("assert not (f1 != f2)", got) == "Fails: assert not (f1 != f2) -> not <function foo...foo>"


def test_the_system_text_is_short():
    assert len(text.SYSTEM) <= 100
