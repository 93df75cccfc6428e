"""What stands between weights and service: the radar's gate, or a policy's."""

import asyncio
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

import flows.release as release
from lakehouse.evaluation.policy import PolicyError
from tasks.gate import NothingToDecide
from tasks.registry.moves import Moved
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

    async def gate(version, *, policy):
        done.append(("gate", version, policy))
        if version == 7:
            raise NothingToDecide("it is the champion")
        reasons = ["is worse", "hacks"] if version == 9 else []
        return SimpleNamespace(passed=not reasons, reasons=reasons, name="tiny", gate_id="gt-1", champion=3)

    def register(folder, **told):
        done.append("register")
        return int(folder)

    for told in ("describe", "tell"):  # of a card, and of an event
        monkeypatch.setattr(release, told, lambda *_, **__: None)
    monkeypatch.setattr(release, "gate", gate)
    monkeypatch.setattr(release, "register", register)
    monkeypatch.setattr(release, "admit", admit)
    monkeypatch.setattr(release, "deploying", deploying)
    monkeypatch.setattr(release, "serve", lambda version, swap="keep": done.append(("serve", version, swap)))
    monkeypatch.setattr(release, "unmoved", lambda version, champion: done.append(("unmoved", version, champion)))

    def promote(version, alias="champion", *, expected="any"):
        done.append(("promote", version, alias, expected))

    monkeypatch.setattr(release, "promote", promote)
    return done


def put_out(folder, **told):
    return asyncio.run(release.release.fn(folder, **told))


def put_out_over(champion):
    """A release of version 8 that the gate compared with a champion."""
    return [
        "locked",
        ("unmoved", 8, champion),  # before anything is swapped
        ("serve", 8, "keep"),
        ("promote", 8, "champion", champion),
        "released",
    ]


PUT_OUT = ["locked", ("serve", 8, "keep"), ("promote", 8, "champion", "any"), "released"]


def test_without_a_policy_the_radar_alone_decides(acts):
    assert put_out("8", max_hack_rate=0.2) == 8
    assert acts == ["register", ("admit", 8, 0.2), *PUT_OUT]


def test_with_a_policy_the_gate_decides_in_the_radars_place(acts):
    assert put_out("8", policy="strict") == 8
    assert acts == ["register", ("gate", 8, "strict"), *put_out_over(3)]


def test_a_champion_that_moved_while_the_gate_decided_stays_and_nothing_is_swapped(acts, monkeypatch):
    def moved(version, champion):
        raise Moved(f"champion was moved by bob; {version} was compared with {champion}")

    monkeypatch.setattr(release, "unmoved", moved)
    with pytest.raises(Moved, match="moved by bob; 8 was compared with 3"):
        put_out("8", policy="strict")
    assert acts == ["register", ("gate", 8, "strict"), "locked"]


def test_a_limit_of_hacks_beside_a_policy_is_refused_before_anything_is_registered(acts):
    with pytest.raises(ValueError, match="max_hack_rate is for a release without a policy"):
        put_out("8", policy="strict", max_hack_rate=0.2)
    assert acts == []


def test_what_the_gate_refuses_is_registered_and_not_served_and_the_flow_fails_with_the_reasons(acts):
    with pytest.raises(NotPromoted, match="tiny version 9 is not promoted, by decision gt-1: is worse; hacks"):
        put_out("9", policy="default")
    assert acts == ["register", ("gate", 9, "default")]


def test_the_champions_own_weights_are_put_out_again_without_a_decision(acts):
    assert put_out("7", policy="default") == 7
    assert ("promote", 7, "champion", 7) in acts  # and not over another one that came meanwhile


def test_a_loop_moves_the_challenger_and_says_what_becomes_of_calls(acts):
    assert put_out("8", alias="challenger", swap="wait") == 8
    assert acts[2:] == ["locked", ("serve", 8, "wait"), ("promote", 8, "challenger", "any"), "released"]


def test_a_policy_that_is_wrong_registers_nothing(acts):
    with pytest.raises(PolicyError, match="no gate policy 'lax'"):
        put_out("8", policy="lax")
    assert acts == []
