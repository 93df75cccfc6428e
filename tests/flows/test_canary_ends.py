"""How a canary ends where the champion moved meanwhile: over scripted acts."""

from contextlib import nullcontext

import pytest

import flows.canary as canary
from tasks.canary import Setting
from tasks.registry.moves import Moved
from tasks.serving.canary import Decision

SETTING = Setting(champion=4, challenger=5, engines=["http://b"])


@pytest.fixture
def acts(monkeypatch):
    """What was done, in order, in a registry whose champion is `acts[0]`."""
    done = [4]

    def unmoved(version, champion):
        if done[0] not in (version, champion):
            raise Moved(f"champion is {done[0]}; {version} was compared with {champion}")

    def promote(version, *, why, evidence, expected):
        unmoved(version, expected)
        done.append(("promote", version))

    monkeypatch.setattr(canary, "deploying", nullcontext)
    monkeypatch.setattr(canary, "unmoved", unmoved)
    monkeypatch.setattr(canary, "promote", promote)
    monkeypatch.setattr(canary, "serve", lambda version, engines=None: done.append(("serve", version, engines)))
    monkeypatch.setattr(canary, "stays", lambda _: done[0])
    monkeypatch.setattr(canary, "stop_splitting", lambda: done.append("unsplit"))
    monkeypatch.setattr(canary, "withdraw", lambda *_: done.append("withdraw"))
    return done


PROMOTE = Decision("promote", "not worse", None)


def test_a_challenger_is_served_everywhere_and_promoted_over_the_champion_it_was_compared_with(acts):
    canary._end(SETTING, PROMOTE)
    assert acts[1:] == [("serve", 5, None), ("promote", 5), "unsplit", "withdraw"]


def test_it_is_not_promoted_over_another_champion_and_nothing_is_swapped_for_it(acts):
    acts[0] = 6
    with pytest.raises(Moved, match="champion is 6; 5 was compared with 4"):
        canary._end(SETTING, PROMOTE)
    assert acts[1:] == []
    canary._end(SETTING, Decision("roll_back", "the canary failed: Moved", None))  # as `_run` does then
    assert acts[1:] == [("serve", 6, ["http://b"]), "unsplit", "withdraw"]
