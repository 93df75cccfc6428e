import pytest

from sandboxes.problems.search.answers import accepted, exact, f1, leading, match, type_of


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


@pytest.mark.parametrize(
    ("given", "form"),
    [
        ("July 28, 1821", "28 July 1821"),
        ("28 Jul 1821", "28 July 1821"),
        ("1821-07-28", "28 July 1821"),
        ("the 28th of July 1821".removeprefix("the "), "28 July 1821"),
        ("28 July 1821", "1821-07-28"),
        ("東京", "東京"),
    ],
)
def test_dates_are_compared_as_dates_and_any_script_as_text(given, form):
    assert match(given, [form])


@pytest.mark.parametrize(
    ("given", "form"), [("1821-28-07", "28 July 1821"), ("28 Julember 1821", "28 July 1821"), ("東京都", "東京")]
)
def test_no_date_and_no_other_word_passes(given, form):
    assert not match(given, [form])


def test_versions_are_texts_and_no_numbers():
    assert match("1.10", ["1.1"]) and not match("1.10", ["1.1"], "text")
    assert match("1.10", ["1.10"], "text")
    assert (type_of("1,234 kB"), type_of("28 July 1821"), type_of("Lima")) == ("number", "date", "text")


@pytest.mark.parametrize(
    ("given", "forms", "em", "score"),
    [
        ("The Eiffel Tower!", ["eiffel tower"], True, 1.0),
        ("the tall Eiffel Tower", ["eiffel tower"], False, 0.8),
        ("Paris", ["London", "Paris, France"], False, 2 / 3),
        ("yes it is", ["yes"], False, 0.0),
        ("Lima Quito Bogota La Paz", ["Lima"], False, 1 / 3),
        ("", ["Lima"], False, 0.0),
        ("the", ["..."], False, 1.0),
        (None, ["Lima"], False, 0.0),
    ],
)
def test_exact_and_f1_are_those_of_squad_and_hotpotqa(given, forms, em, score):
    assert exact(given, forms) is em
    assert f1(given, forms) == pytest.approx(score)


def test_a_number_of_any_length_is_an_answer_like_others():
    assert not match("9" * 6000, ["5 km"])
    assert not match("9" * 150, ["5 km"])
