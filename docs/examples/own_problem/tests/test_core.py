import pytest
from slugs import slugify
from slugs.core import words


def test_words_are_lower_case():
    assert words("One, TWO & three") == ["one", "two", "three"]


def test_words_are_joined():
    assert slugify("One, two") == "one-two"


@pytest.mark.parametrize("limit, expected", [(7, "one-two"), (6, "one"), (8, "one-two"), (2, "")])
def test_a_slug_may_be_as_long_as_the_limit(limit, expected):
    assert slugify("One two", limit) == expected
