from slugs import slugify
from slugs.core import words


def test_words_are_lower_case():
    assert words("One, TWO & three") == ["one", "two", "three"]


def test_words_are_joined():
    assert slugify("One, two") == "one-two"
