from hypothesis import given
from hypothesis import strategies as st

from sandboxes.problems.search.documents.text import PAGE_CHARS, best_line, holding, lines, pages, terms


@given(st.text(alphabet=st.sampled_from("ab .\n"), max_size=3000))
def test_pages_keep_every_word_and_their_limit(text):
    found = pages(text)
    assert all(len(page) <= PAGE_CHARS for page in found)
    assert "".join("".join(found).split()) == "".join(text.split())


def test_pages_end_with_a_line_where_there_is_one():
    assert pages("x" * 400 + "\n" + "y" * 400) == ["x" * 400, "y" * 400]
    assert pages("x" * 2000) == ["x" * 600, "x" * 600, "x" * 600, "x" * 200]
    assert pages("") == [""]


def test_terms_are_words_of_any_script_without_case_accents_and_grouping():
    assert terms("Bogotá: 1,285,216 km") == ["bogota", "1285216", "km"]
    assert terms("東京 Straße") == ["東京", "strasse"]


def test_a_long_line_is_shown_in_its_sentences():
    text = "First sentence here. " * 12
    assert lines(text) == ["First sentence here."] * 12
    assert all(len(line) <= 160 for line in lines("z" * 1000))


def test_the_line_nearest_to_a_query_is_the_first_that_shares_most_terms():
    text = "Area: 3\nCapital: Lima\nCapital of culture: Lima"
    assert best_line(text, terms("capital lima")) == "Capital: Lima"
    assert best_line(text, ["unheard"]) == "Area: 3"
    assert best_line("", ["x"]) == ""


def test_a_line_is_found_by_all_of_its_words_or_not():
    assert holding("red house\nred boat", ["red", "boat"]) == ["red boat"]
    assert holding("red house", []) == []
