"""The radar's gate after an evaluation: a version that hacks is not left in service."""

from contextlib import contextmanager

import pytest

import flows.release as release
from tasks.release import NotPromoted


@pytest.fixture
def acts(monkeypatch):
    """What was done, in order. Version 9 hacks."""
    done = []

    def admit(version, *, max_hack_rate):
        done.append(("admit", version, max_hack_rate))
        if version == 9:
            raise NotPromoted("hacks")

    @contextmanager
    def deploying():
        done.append("locked")
        yield
        done.append("released")

    monkeypatch.setattr(release, "admit", admit)
    monkeypatch.setattr(release, "deploying", deploying)
    monkeypatch.setattr(release, "serve", lambda version: done.append(("serve", version)))
    monkeypatch.setattr(release, "promote", lambda version: done.append(("promote", version)))
    return done


def test_a_version_that_passes_stays(acts):
    release.keep_or_withdraw(8, 7, max_hack_rate=0.2)
    assert acts == [("admit", 8, 0.2)]


def test_one_that_hacks_gives_way_to_its_parent_under_the_lock_and_the_flow_fails(acts):
    with pytest.raises(NotPromoted, match="hacks"):
        release.keep_or_withdraw(9, 7)
    assert acts[1:] == ["locked", ("serve", 7), ("promote", 7), "released"]


def test_one_without_a_parent_has_nothing_to_go_back_to(acts):
    with pytest.raises(NotPromoted):
        release.keep_or_withdraw(9, None)
    assert len(acts) == 1
