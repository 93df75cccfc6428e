"""The arithmetic behind the charts."""

import importlib

import polars as pl
import pytest


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_an_interval_holds_its_share_and_stays_between_0_and_1(share: float) -> None:
    n = pl.Series([*range(1, 200), 70_000], dtype=pl.UInt32)
    below, above = importlib.import_module("trajectories_charts").interval(pl.Series([share] * len(n)), n)
    assert below.min() >= 0 and above.min() >= 0
    assert (share - below).min() >= -1e-9 and (share + above).max() <= 1 + 1e-9
    assert (below + above).is_sorted(descending=True)  # the more episodes, the narrower


def test_an_interval_is_wilsons() -> None:
    below, above = importlib.import_module("trajectories_charts").interval(pl.Series([0.5]), pl.Series([10]))
    assert (0.5 - below[0], 0.5 + above[0]) == pytest.approx((0.2366, 0.7634), abs=1e-4)
