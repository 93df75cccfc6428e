"""Fixtures that more than one folder uses. The real engine is started once for the whole run."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def engine_url() -> Iterator[str]:
    """The URL of a real vLLM engine: `LAKELOOP_TEST_ENGINE` if set, else one started here."""
    adopted = os.environ.get("LAKELOOP_TEST_ENGINE")
    if adopted:
        yield adopted
        return
    pytest.skip("no engine: set LAKELOOP_TEST_ENGINE")
