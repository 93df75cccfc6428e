"""Moves of aliases, ours and others', in the audit; versions that are refused."""

import json
import re

import pytest

from lakehouse.governance import audit
from tasks.registry import moves
from tasks.registry.versions import CHAMPION, Lineage, RegistryError


@pytest.fixture
def name(registry, weights, tmp_path, request):
    """A model with three versions."""
    name = re.sub(r"\W+", "-", request.node.name)[-80:]
    for number in (1, 2, 3):
        registry.register(name, weights(tmp_path / f"v{number}", float(number)), lineage=Lineage(stage="base"))
    return name


def entries():
    """Who moved which alias from where to where and why, the oldest first."""
    found = reversed(audit.entries(action=moves.MOVED).to_dicts())
    return [
        (one["actor"], one["object"], *(json.loads(one["detail"])[key] for key in ("from", "to", "why")))
        for one in found
    ]


def test_a_move_is_audited_with_who_why_and_the_evidence(registry, name):
    moves.move(registry, name, CHAMPION, 1, who="alice", why="first", evidence={"gate_id": "g1"})
    moves.move(registry, name, CHAMPION, 2, who="bob", why="better")
    moves.move(registry, name, moves.CHALLENGER, 3, who="bob", why="canary")
    moves.move(registry, name, moves.CHALLENGER, None, who="bob", why="rolled back")
    assert entries() == [
        ("alice", f"{name}@champion", None, 1, "first"),
        ("bob", f"{name}@champion", 1, 2, "better"),
        ("bob", f"{name}@challenger", None, 3, "canary"),
        ("bob", f"{name}@challenger", 3, None, "rolled back"),
    ]
    [first] = audit.entries(action=moves.MOVED, actor="alice").to_dicts()
    assert json.loads(first["detail"])["evidence"] == {"gate_id": "g1"}
    assert (registry.promoted(name), registry.promoted(name, moves.CHALLENGER)) == (2, None)


def test_a_move_in_the_ui_is_found_at_the_next_look_and_said_to_be_somebodys(registry, name):
    moves.move(registry, name, CHAMPION, 1, who="alice", why="first")
    registry.client.set_registered_model_alias(name, CHAMPION, "3")
    assert moves.note_others(registry, name) == [f"champion of {name}: 1 -> 3"]
    assert moves.note_others(registry, name) == []
    registry.client.delete_registered_model_alias(name, CHAMPION)
    moves.move(registry, name, CHAMPION, 2, who="bob", why="better")  # what happened before it is not lost
    assert [(who, before, after) for who, _, before, after, _ in entries()] == [
        ("alice", None, 1), ("mlflow-ui", 1, 3), ("mlflow-ui", 3, None), ("bob", None, 2),
    ]  # fmt: skip
    assert "does not tell by whom" in entries()[1][4]


def test_a_version_that_may_not_be_served_is_not_promoted_and_nothing_is_audited(registry, name, tmp_path):
    (tmp_path / "v2" / "model.safetensors").unlink()
    with pytest.raises(RegistryError, match="are gone"):
        moves.move(registry, name, CHAMPION, 2, who="alice", why="try")
    assert entries() == []


def test_a_refusal_is_a_tag_that_people_see_until_the_version_is_served(registry, name):
    moves.forgive(registry, name, 2)  # nothing was refused
    moves.refuse(registry, name, 2, "its files are gone", who="alice")
    assert registry.client.get_model_version(name, "2").tags[moves.REFUSED] == "its files are gone"
    moves.forgive(registry, name, 2)
    assert moves.REFUSED not in registry.client.get_model_version(name, "2").tags


def test_a_move_that_rests_on_a_comparison_with_another_champion_is_not_made_and_says_who_moved_it(registry, name):
    moves.move(registry, name, CHAMPION, 1, who="alice", why="first", expected=None)
    moves.move(registry, name, CHAMPION, 3, who="bob", why="gate", expected=1)
    said = f"champion of {name} was moved by bob at 20.* and points at version 3; .* version 2 compared that with version 1"
    with pytest.raises(moves.Moved, match=said):
        moves.move(registry, name, CHAMPION, 2, who="carol", why="gate", expected=1)
    with pytest.raises(moves.Moved, match="compared that with no version"):
        moves.unmoved(registry, name, CHAMPION, 2, None)
    assert registry.promoted(name) == 3
    assert [who for who, *_ in entries()] == ["alice", "bob"]
    registry.client.set_registered_model_alias(name, CHAMPION, "1")
    with pytest.raises(moves.Moved, match="was moved by mlflow-ui"):
        moves.move(registry, name, CHAMPION, 2, who="carol", why="gate", expected=3)


def test_a_move_that_is_tried_again_after_it_was_made_is_as_expected(registry, name):
    moves.move(registry, name, CHAMPION, 1, who="alice", why="first")
    for _ in range(2):
        moves.move(registry, name, CHAMPION, 2, who="bob", why="gate", expected=1)
    assert registry.promoted(name) == 2


def failing(monkeypatch, action, times=1):
    """The lake is away as often as an entry of that kind is to be written."""
    left, real = [None] * times, audit.note

    def note(lake, what, *given, **told):
        if what == action and left:
            left.pop()
            raise OSError("the lake is away")
        return real(lake, what, *given, **told)

    monkeypatch.setattr(audit, "note", note)


EVIDENCE = {"gate_id": "g1"}


@pytest.mark.parametrize("then", ["tried again", "found by the watcher"])
def test_a_move_that_was_made_and_could_not_be_written_down_is_its_movers_and_there_once(
    registry, name, monkeypatch, then
):
    moves.move(registry, name, CHAMPION, 1, who="alice", why="first")
    failing(monkeypatch, moves.MOVED)
    with pytest.raises(OSError, match="away"):
        moves.move(registry, name, CHAMPION, 2, who="gate", why="better", evidence=EVIDENCE, expected=1)
    assert registry.promoted(name) == 2
    if then == "tried again":
        moves.move(registry, name, CHAMPION, 2, who="gate", why="better", evidence=EVIDENCE, expected=1)
    assert moves.note_others(registry, name) == []
    assert [(who, before, after) for who, _, before, after, _ in entries()] == [("alice", None, 1), ("gate", 1, 2)]
    [mine] = audit.entries(action=moves.MOVED, actor="gate").to_dicts()
    assert json.loads(mine["detail"])["evidence"] == EVIDENCE


def test_a_move_that_was_never_made_is_nobodys_when_a_person_makes_it_later(registry, name, monkeypatch):
    moves.move(registry, name, CHAMPION, 1, who="alice", why="first")
    with monkeypatch.context() as away:
        away.setattr(registry, "promote", lambda *_: (_ for _ in ()).throw(OSError("MLflow is away")))
        with pytest.raises(OSError, match="MLflow"):
            moves.move(registry, name, CHAMPION, 2, who="gate", why="better")
    assert moves.note_others(registry, name) == []
    registry.client.set_registered_model_alias(name, CHAMPION, "2")
    assert moves.note_others(registry, name) == [f"champion of {name}: 1 -> 2"]
    assert [(who, before, after) for who, _, before, after, _ in entries()] == [("alice", None, 1), ("mlflow-ui", 1, 2)]
    assert audit.entries(action=moves.DROPPED)["actor"].to_list() == ["gate"]


def test_an_intent_that_cannot_be_written_down_moves_nothing(registry, name, monkeypatch):
    failing(monkeypatch, moves.INTENDED)
    with pytest.raises(OSError, match="away"):
        moves.move(registry, name, CHAMPION, 1, who="gate", why="better")
    assert registry.promoted(name) is None


def test_a_model_whose_name_ends_in_anothers_has_moves_of_its_own(registry, name, weights, tmp_path):
    registry.register(f"big{name}", weights(tmp_path / "big", 9.0), lineage=Lineage(stage="base"))
    moves.move(registry, name, CHAMPION, 3, who="alice", why="first")
    moves.move(registry, f"big{name}", CHAMPION, 1, who="bob", why="first")
    assert moves.note_others(registry, name) == []
