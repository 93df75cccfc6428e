import pytest

from sandboxes.problems.swe.pairs import applied, hunks

CASES = {
    "a line changed": ("a\nb\nc\n", "a\nx\nc\n"),
    "lines added": ("a\nb\n", "a\nx\ny\nb\n"),
    "lines added after a blank": ("a\n\nb\n", "a\n\nx\n\nb\n"),
    "lines deleted": ("a\nb\nc\nd\n", "a\nd\n"),
    "several places": ("a\nb\nc\nd\ne\n", "x\nb\nc\ny\nz\ne\n"),
    "at the top": ("a\nb\n", "x\ny\na\nb\n"),
    "at the top, before a blank": ("\na\nb\n", "x\n\na\nb\n"),
    "at the end": ("a\nb", "a\nb\nc"),
}


@pytest.mark.parametrize("name", CASES)
def test_hunks_turn_one_source_into_the_other(name):
    before, after = CASES[name]
    edits = hunks("m.py", before, after)
    assert applied(before, edits) == after
    assert all(edit.old.strip() for edit in edits)
