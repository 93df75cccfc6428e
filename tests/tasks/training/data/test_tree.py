"""Rows that begin alike as one sequence: nothing is lost, nothing is there twice that need not be."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.training.data.tree import overlaps, tree_of

# Few tokens and many rows: prefixes meet at every depth.
ROWS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=24), min_size=1, max_size=12)


def arrays(rows: list[list[int]]) -> list[np.ndarray]:
    return [np.array(row, dtype=np.int64) for row in rows]


@given(rows=ROWS, shared=st.one_of(st.none(), st.integers(1, 6)))
@settings(max_examples=200, deadline=None)
def test_every_row_is_a_path_of_the_tree_and_sees_only_itself(rows: list[list[int]], shared: int | None) -> None:
    tree = tree_of(arrays(rows), shared)
    for row, places in zip(rows, tree.places, strict=True):
        assert tree.ids[places].tolist() == row
        assert tree.depths[places].tolist() == list(range(len(row)))
        for depth, i in enumerate(places):
            visible = [j for j in range(i + 1) if i < tree.reach[j]]
            assert visible == places[: depth + 1].tolist()


@given(rows=ROWS)
@settings(max_examples=100, deadline=None)
def test_with_a_minimum_of_one_token_there_are_as_many_as_distinct_prefixes(rows: list[list[int]]) -> None:
    distinct = {tuple(row[:n]) for row in rows for n in range(1, len(row) + 1)}
    assert len(tree_of(arrays(rows), 1).ids) == len(distinct)
    assert len(tree_of(arrays(rows), None).ids) == sum(len(row) for row in rows)


@given(rows=ROWS, shared=st.integers(1, 6))
@settings(max_examples=100, deadline=None)
def test_segments_cover_the_sequence_and_their_descendants_stand_behind_them(
    rows: list[list[int]], shared: int
) -> None:
    tree = tree_of(arrays(rows), shared)
    assert [segment.start for segment in tree.segments] == [0, *(segment.end for segment in tree.segments[:-1])]
    assert tree.segments[-1].end == len(tree.ids)
    for segment in tree.segments:
        assert set(tree.reach[segment.start : segment.end]) == {segment.reach}
        inside = tree.depths[segment.start : segment.end]
        assert np.array_equal(inside, np.arange(inside[0], inside[0] + len(inside)))


def test_less_than_the_minimum_is_not_shared_and_no_branch_saves_less() -> None:
    a, b, c = [1] * 9, [1] * 5 + [2] * 4, [1] * 3 + [3] * 6
    assert overlaps(arrays([a, b, c]), 6)[1] == [0, 0, 0]
    assert overlaps(arrays([a, b, c]), 5)[1] == [0, 5, 0]
    assert overlaps(arrays([c, b, a]), 3) == ([2, 1, 0], [0, 5, 3])
    d = [1] * 3 + [3] * 2 + [4] * 4  # two tokens more than c has with the others: too few for a branch of its own
    assert overlaps(arrays([a, b, c, d]), 3) == ([0, 1, 2, 3], [0, 5, 3, 3])
