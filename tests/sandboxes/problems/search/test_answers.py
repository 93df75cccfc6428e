import pytest

from sandboxes.problems.search.answers import accepted, leading, match


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("Lima", "Lima"),
        ("28 July 1821 (from Spain)", "28 July 1821"),
        ("643,801 sq km; 551,500 sq km (metropolitan France)", "643,801 sq km"),
        ("Jerusalem: note - the US", "Jerusalem"),
        ("(all)", ""),
    ],
)
def test_the_leading_part_is_the_answer(text, clean):
    assert leading(text) == clean


def test_currencies_are_also_known_by_their_code_and_peaks_without_their_height():
    assert accepted("nuevo sol (PEN)") == ["nuevo sol", "PEN", "nuevo sol (PEN)"]
    assert accepted("Nevado Huascaran 6,768 m") == ["Nevado Huascaran 6,768 m", "Nevado Huascaran"]


@pytest.mark.parametrize(
    ("given", "form"),
    [
        ("lima", "Lima"),
        (" The  Bogotá. ", "Bogota"),
        ("pe", ".pe"),
        ("1285216", "1,285,216 sq km"),
        ("1,285,216 SQ KM", "1,285,216 sq km"),
        ("27.30 years", "27.3 years"),
        ("16550000", "16.55 million"),
        ("-408 m", "-408 m"),
    ],
)
def test_words_are_compared_as_words_and_numbers_as_numbers(given, form):
    assert match(given, [form])


@pytest.mark.parametrize(
    ("given", "form"),
    [
        (None, "Lima"),
        ("", "Lima"),
        ("Lima Peru Quito", "Lima"),
        ("1,285,216 km", "1,285,216 sq km"),
        ("1285217", "1,285,216 sq km"),
        ("408 m", "-408 m"),
        ("1821", "28 July 1821"),
        ("28 July 1822", "28 July 1821"),
        ("the", "the"),
        ("...", "..."),
    ],
)
def test_what_is_not_the_answer_does_not_match(given, form):
    assert not match(given, [form])
