"""Labelled episodes to select from."""

import pytest

from lakehouse.label import label
from lakehouse.write import Writer


@pytest.fixture
def landed(lake, make):
    """Lands a batch with its problem and judges it; gives the lake."""

    def land(batch):
        Writer(lake).append("problems", [make.problem()])
        batch.land(lake)
        label(lake, "search@2")
        return lake

    return land
