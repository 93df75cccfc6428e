"""Somebody moves `champion` while a loop is at work: what the loop goes on from, and what reconcile wants served."""

from contextlib import nullcontext
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from lakehouse.governance import audit
from lakehouse.records import ModelVersion
from lakehouse.write import Writer
from tasks import improve, reconcile
from tasks.registry import moves
from tasks.registry.versions import CHAMPION, Lineage, Registry, RegistryError

NAME = "tiny"
OWN = (2, 3)


@pytest.fixture
def registry(own_mlflow, weights, tmp_path, monkeypatch):
    """The versions 1 to 3, each trained from the one before; 1 is promoted and 3 the newest of a loop, which serves it."""
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path / "home"))
    registry = own_mlflow()
    about = {"mlflow_run_id": "m", "weights_digest": "d", "stage": "grpo", "commit": "", "learnt_from": None}
    about |= {"training_set_id": None, "licences": [], "allowed_uses": []}

    def version(number):
        folder = weights(tmp_path / f"v{number}", float(number))
        parent = number - 1 or None
        registry.register(NAME, folder, lineage=Lineage(stage="grpo", parent=parent))
        values = {"name": NAME, "version": number, "parent_version": parent, "weights_path": str(folder)}
        Writer().append("model_versions", [ModelVersion(**values, **about, created_at=datetime.now(UTC))])

    version(1)
    moves.move(registry, NAME, CHAMPION, 1, who="a person", why="the first")
    for number in OWN:
        version(number)
        moves.move(registry, NAME, moves.CHALLENGER, number, who="the loop", why="released")
    settings = SimpleNamespace(
        model_name=NAME, mlflow_url="", engine="http://e", gateway_url="", operator_key=None, prefect_url=""
    )
    for module in (improve, reconcile):
        monkeypatch.setattr(module, "Settings", lambda: settings)
        monkeypatch.setattr(module, "Registry", lambda url: registry)
    return registry


def by_ui(registry: Registry, version: int) -> None:
    registry.client.set_registered_model_alias(NAME, CHAMPION, str(version))


def test_a_loop_goes_on_from_its_own_newest_version_until_somebody_moves_the_champion(registry):
    assert improve.standing(OWN).version == 3
    by_ui(registry, 2)
    found = improve.standing(OWN)
    assert (found.version, found.lineage) == (2, {1, 2})
    (moved,) = audit.entries(action=moves.MOVED, actor=moves.OTHERS).to_dicts()  # and it is written down at once
    assert moved["object"] == f"{NAME}@champion"
    assert improve.standing(OWN).version == 2


def test_a_release_by_somebody_else_counts_as_well_and_what_the_loop_trains_from_it_then_stands(
    registry, weights, tmp_path
):
    for version in (2, 1):
        moves.move(registry, NAME, CHAMPION, version, who="a person", why="tried, and went back")
    assert improve.standing(OWN).version == 1
    folder = weights(tmp_path / "v4", 4.0)
    registry.register(NAME, folder, lineage=Lineage(stage="grpo", parent=1))
    record = ModelVersion.model_validate(
        {"name": NAME, "version": 4, "parent_version": 1, "weights_path": str(folder), "mlflow_run_id": "m"}
        | {
            "weights_digest": "d",
            "stage": "grpo",
            "commit": "",
            "training_set_id": None,
            "created_at": datetime.now(UTC),
        }
        | {"licences": [], "allowed_uses": [], "learnt_from": None}
    )
    Writer().append("model_versions", [record])
    moves.move(registry, NAME, moves.CHALLENGER, 4, who="the loop", why="released")
    assert improve.standing((*OWN, 4)).version == 4


@pytest.fixture
def engine(monkeypatch, registry):
    """An engine that serves what is deployed, or says no."""
    engine = SimpleNamespace(serves=3, bad=set(), tried=[])

    def put_in_service(version, swap):
        engine.tried.append(version)
        if version in engine.bad:
            raise RegistryError(f"the weights of version {version} are gone")
        engine.serves = version

    def refuse(version, alias, reason):
        assert alias == CHAMPION
        moves.refuse(registry, NAME, version, reason, who="the loop")

    monkeypatch.setattr(improve, "put_in_service", put_in_service)
    monkeypatch.setattr(improve, "refuse", refuse)
    return engine


def test_what_somebody_promoted_is_put_in_service_before_the_loop_goes_on_from_it(registry, engine):
    assert improve.stand(OWN, 3, "keep").version == 3
    assert engine.tried == []  # it is served
    by_ui(registry, 1)
    by_ui(registry, 2)
    assert improve.stand(OWN, 3, "keep").version == 2 == engine.serves


def test_a_promoted_version_that_cannot_be_served_is_refused_at_once_and_the_loops_own_goes_on(registry, engine):
    engine.bad = {2}
    by_ui(registry, 2)
    assert improve.stand(OWN, 3, "keep").version == 3
    tags = registry.client.get_model_version(NAME, "2").tags
    assert "are gone" in tags[moves.REFUSED]
    assert improve.stand(OWN, 3, "keep").version == 3
    assert (engine.tried, engine.serves) == ([2], 3)  # and is not tried again
    assert improve.stand(OWN, 0, "keep").version == 3  # nor by a loop that comes back
    assert engine.tried == [2, 3]


def test_where_the_loop_has_no_version_of_its_own_a_bad_champion_ends_it_with_the_reason(registry, engine):
    engine.bad = {2}
    by_ui(registry, 2)
    with pytest.raises(RegistryError, match="the weights of version 2 are gone"):
        improve.stand((), 1, "keep")


@pytest.mark.parametrize("loop", [True, False])
@pytest.mark.parametrize("moved", [True, False])
def test_reconcile_wants_the_challenger_served_while_a_loop_is_at_work_and_nobody_moved_the_champion(
    registry, monkeypatch, loop, moved
):
    member = SimpleNamespace(state="serving", version="3")
    gate = SimpleNamespace(states=lambda: {"http://e": member, "http://f": member}, split=lambda: None)
    monkeypatch.setattr(reconcile, "Gate", lambda url, key: nullcontext(gate))
    monkeypatch.setattr(reconcile, "Engine", lambda url: nullcontext(SimpleNamespace(served_version=lambda: 3)))
    monkeypatch.setattr(reconcile, "Watch", lambda *_: SimpleNamespace(alive=lambda flow: loop))
    if moved:
        by_ui(registry, 2)
    due = reconcile.look.fn()
    if loop and not moved:
        assert (due.version, due.alias, due.engines) == (3, moves.CHALLENGER, [])
    else:
        assert (due.version, due.alias, due.engines) == (2 if moved else 1, CHAMPION, ["http://e", "http://f"])
