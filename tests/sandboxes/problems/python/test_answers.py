from fractions import Fraction

import pytest

from sandboxes.problems.python.answers import final, number, same


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("42", 42),
        (" 42. ", 42),
        ("-7", -7),
        ("\u22127", -7),
        ("1,234,567", 1234567),
        ("$18", 18),
        ("$1,024.50", Fraction(2049, 2)),
        ("18 dollars", 18),
        ("18 km/h", 18),
        ("25%", 25),
        ("25 \\%", 25),
        ("3/4", Fraction(3, 4)),
        ("-3/4", Fraction(-3, 4)),
        ("2 1/2", Fraction(5, 2)),
        ("0.125", Fraction(1, 8)),
        (".5", Fraction(1, 2)),
        ("1.5e3", 1500),
        ("1.2 \\times 10^{3}", 1200),
        ("3 million", 3_000_000),
        ("x = 5", 5),
        ("Natalia sold 48/2 = 24 clips.\n#### 72", 72),
        ("#### 1,080 ", 1080),
        ("so \\boxed{42}", 42),
        ("first \\boxed{1}, no: \\boxed{\\frac{3}{4}}", Fraction(3, 4)),
        ("\\boxed{\\dfrac{10}{4}}", Fraction(5, 2)),
        ("\\boxed{\\frac34}", Fraction(3, 4)),
        ("\\boxed{12\\text{ cm}}", 12),
        ("\\boxed{90^\\circ}", 90),
        ("\\boxed{10{,}000}", 10000),
        ("$\\boxed{7}$.", 7),
    ],
)
def test_a_number_is_read_as_people_and_models_write_it(text, value):
    assert number(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no idea",
        "41 or 42",
        "41, 42, 43",
        "41 42",
        "3/0",
        "the answer is 42",
        "1e999999999",
        "9" * 10_000,
        "\\boxed{}",
        "\\boxed{x",
        "#### ",
        "nan",
        "inf",
        "42 = 6 * 7 and also 43",
    ],
)
def test_what_is_no_number_or_several_is_none(text):
    assert number(text) is None


def test_the_last_box_counts_then_what_follows_the_hashes():
    assert final("#### 3 \\boxed{4}") == "4"
    assert final("#### 3\n#### 5") == "5"
    assert final(" 6 ") == "6"


def test_a_tolerance_is_relative_and_without_one_values_are_equal():
    assert same(Fraction(1, 3), Fraction(1, 3), 0.0)
    assert not same(Fraction(333, 1000), Fraction(1, 3), 0.0)
    assert same(Fraction(33333, 100_000), Fraction(1, 3), 1e-4)
    assert not same(Fraction(333, 1000), Fraction(1, 3), 1e-4)
    assert not same(None, Fraction(0), 0.1)
    assert same(Fraction(0), Fraction(0), 0.0)
