"""What there is, is counted."""

from lakehouse.governance.statistics import sizes
from lakehouse.write import Writer


def test_rows_files_and_bytes_of_each_table(lake, make):
    assert sizes(lake) == []
    for number in range(3):
        make.batch("p", number).land(lake)
    before = {one.table: one for one in sizes(lake)}
    assert (before["calls"].rows, before["calls"].files) == (3, 3)
    Writer(lake).compact()
    after = {one.table: one for one in sizes(lake)}
    assert (after["calls"].rows, after["calls"].files) == (3, 1)
    assert after["calls"].version > before["calls"].version
    assert after["calls"].files_kept > before["calls"].files_kept
    assert 0 < after["calls"].bytes < after["calls"].bytes_kept
