"""Rubric files: versions side by side, headers that say what they are, references with parameters."""

import pytest

from lakehouse.rubrics import RubricError, UnknownRubric, asked, current, rubrics


def test_versions_of_a_rubric_lie_side_by_side_and_the_newest_is_current(own):
    before = [one.title for one in rubrics() if one.name == "swe"]
    assert before == ["swe@1", "swe@2"]
    own.paying("swe@3", "1")
    assert [one.title for one in rubrics() if one.name == "swe"] == ["swe@1", "swe@2", "swe@3"]
    assert current("swe") == "swe@3"
    assert asked("swe@1").rubric.shipped and not asked("swe@3").rubric.shipped


@pytest.mark.parametrize("name", ["nope@1", "swe@99", "swe", "swe@02", "../swe@2", "swe@2.sql", "swe@2:", ""])
def test_an_unknown_rubric_is_refused_with_what_there_is(name):
    with pytest.raises(UnknownRubric, match="swe@2"):
        asked(name)


def test_there_is_no_current_version_of_nothing():
    with pytest.raises(UnknownRubric, match="there are external, judge"):
        current("nope")


def test_a_reference_gives_parameters_and_the_rest_have_their_defaults(own):
    own.paying("toy@1", "$low + $high", header="-- parameter low: 0.25, the least\n-- parameter high: 2\n")
    own.write("toy@2", "select $word", header='-- parameter word: "so"\n-- parameter strict: false\n')
    assert asked("toy@1").parameters == {"low": 0.25, "high": 2}
    assert asked("toy@1:low=0.5").parameters == {"low": 0.5, "high": 2}
    assert asked("toy@1:low=0.5,high=2").title == "toy@1:low=0.5"
    assert asked("toy@2:word=a b,strict=true").parameters == {"word": "a b", "strict": True}
    assert asked("toy@1").rubric.parameters["low"].about == "the least"
    for reference in ("toy@1:lo=1", "toy@1:low", "toy@1:low=much", "toy@1:low=true", "toy@2:strict=1"):
        with pytest.raises(UnknownRubric, match="parameter"):
            asked(reference)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("-- grain: one row per search episode\n", ""), "no line `-- grain"),
        (("-- kinds:", "-- kind:"), "its header has 'kind'"),
        (("-- version: 1", "-- version: 2"), "must be called toy@2.sql"),
        (("-- version: 1", "-- version: one"), "a number"),
        (("-- name: toy", "-- name: Toy"), "lower-case"),
        (("-- inputs: episodes\n", "-- inputs: episodes\n-- parameter p: much\n"), "must begin with its default"),
        (("-- inputs: episodes\n", "-- inputs: episodes\n-- parameter p: [1]\n"), "must begin with its default"),
        (("-- inputs: episodes\n", "-- inputs: episodes\n-- unjudged: most\n"), "a share from 0 to 1"),
    ],
)
def test_a_file_whose_header_is_wrong_is_named(own, change, why):
    path = own.paying("toy@1", "1")
    path.write_text(path.read_text().replace(*change))
    with pytest.raises(RubricError, match=why) as error:
        rubrics()
    assert str(path) in str(error.value)


def test_two_files_of_one_version_are_refused(own):
    own.paying("swe@2", "1")
    with pytest.raises(RubricError, match="same version"):
        rubrics()


def test_a_wrong_file_is_in_nobodys_way_until_it_is_asked_for(own):
    own.write("toy@1", "select 1", header="-- nonsense: 1\n")
    assert asked("swe@2").title == current("swe") == "swe@2"
    with pytest.raises(RubricError, match="nonsense"):
        asked("toy@1")


def test_comments_and_indentation_are_no_other_text(own):
    path = own.paying("toy@1", "1")
    before = asked("toy@1").rubric.digest
    path.write_text(path.read_text().replace("-- grain: one", "-- grain:  One").replace("    ", "  "))
    assert asked("toy@1").rubric.digest == before
    path.write_text(path.read_text().replace("1 as reward", "2 as reward"))
    assert asked("toy@1").rubric.digest != before
