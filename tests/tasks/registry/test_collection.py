"""What nothing refers to goes; what anything refers to stays, whatever happens at the same time."""

import fcntl
import json
import os
import threading
import time
from pathlib import Path

import pytest

from tasks.registry import collection
from tasks.registry.collection import Policy, collect, survey
from tasks.registry.versions import USED, Lineage, RegistryError

OLD = "2020-01-01T00:00:00+00:00"
ONE = Policy(versions=1, days=1)


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "runs"


@pytest.fixture
def made(registry, weights, runs, request):
    """Makes versions 1 to n of a model of its own, long ago, each from the one before."""

    def make(count: int) -> str:
        name = f"m{abs(hash(request.node.name))}"
        for number in range(1, count + 1):
            folder = weights(runs / f"{name}-{number}" / "model", float(number))
            (folder / "config.json").write_text("{}")
            lineage = Lineage(stage="grpo", parent=number - 1 or None, training_set=f"ts-{number}")
            assert registry.register(name, folder, lineage=lineage) == number
            registry.tag(name, number, USED, OLD)
        return name

    return make


def aged(run: Path) -> Path:
    for file in run.rglob("*"):
        os.utime(file, (0, 0))
    return run


def fates(registry, runs, policy=ONE, **more) -> dict[str, str | None]:
    return {version: one.kept for one in survey(registry, runs, policy, **more) for version in one.versions}


def test_kept_are_aliases_their_parents_the_newest_the_served_and_what_was_asked_for(registry, runs, made):
    name = made(7)
    registry.promote(name, 4)
    registry.promote(name, 6, "challenger")
    registry.tag(name, 2, USED, "2999-01-01T00:00:00+00:00")
    kept = fates(registry, runs, served=[(name, 1)])
    assert kept[f"{name}@1"] == "served"
    assert kept[f"{name}@2"].startswith("used since")
    assert kept[f"{name}@3"] == "parent of champion (version 4)"
    assert kept[f"{name}@4"] == "alias champion"
    assert kept[f"{name}@5"] == "parent of challenger (version 6)"
    assert kept[f"{name}@6"] == "alias challenger"
    assert kept[f"{name}@7"] == "one of the newest 1"


def test_a_survey_changes_nothing_and_a_removal_frees_the_disk_and_marks_the_version(registry, runs, made):
    name = made(3)
    registry.promote(name, 3)
    held = registry.version(name, 1)
    place = Path(registry.client.get_run(held.run_id).info.artifact_uri.removeprefix("file://")) / "model" / "model"
    weight = held.weights_path / "model.safetensors"
    assert weight.stat().st_nlink == 2
    (plan,) = [one for one in survey(registry, runs, ONE) if one.kept is None]
    assert (plan.versions, plan.size, weight.exists()) == ([f"{name}@1"], weight.stat().st_size, True)
    assert [one.versions for one in collect(registry, runs, ONE)] == [[f"{name}@1"]]
    assert not weight.exists()
    assert [file.name for file in place.iterdir()] == ["config.json"]
    assert (held.weights_path / "config.json").exists()
    with pytest.raises(RegistryError, match=r"were removed: on .*maintain.* Train it from training set ts-1"):
        registry.promote(name, 1)
    assert registry.version(name, 2).removed is None
    assert collect(registry, runs, ONE) == []


def test_a_removal_that_was_cut_off_is_gone_on_with(registry, runs, made, monkeypatch):
    name = made(3)
    registry.promote(name, 3)
    monkeypatch.setattr(collection.shutil, "rmtree", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        collect(registry, runs, ONE)
    monkeypatch.undo()
    monkeypatch.setenv("LAKELOOP_HOME", str(runs.parent / "home"))
    with pytest.raises(RegistryError, match="were removed"):  # marked before anything was taken
        registry.intact(name, 1)
    assert [one.versions for one in collect(registry, runs, ONE)] == [[f"{name}@1"]]


def test_weights_outside_of_the_runs_are_nobodys_to_remove(registry, weights, runs, made, tmp_path):
    name = made(1)
    mine = weights(tmp_path / "mine", 9.0)
    number = registry.register(name, mine, lineage=Lineage(stage="base"))
    registry.tag(name, number, USED, OLD)
    registry.promote(name, 1)
    collect(registry, runs, ONE)
    assert (mine / "model.safetensors").exists()


def test_a_running_trainer_keeps_its_own_folder_and_what_it_trains_from(registry, runs, made):
    name = made(3)
    registry.promote(name, 3)
    work = runs / "grpo-now" / "work"
    (work / "checkpoints" / "step-1").mkdir(parents=True)
    (work / "checkpoints" / "step-1" / "x.distcp").write_text("x")
    (work / "config.json").write_text(json.dumps({"model": str(registry.version(name, 1).weights_path)}))
    with (work / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        aged(runs / "grpo-now")
        kept = {one.run.name: one.kept for one in survey(registry, runs, ONE)}
        assert kept["grpo-now"] == "it trains now"
        assert kept[f"{name}-1"] == "grpo-now trains from it"
        assert collect(registry, runs, ONE) == []
    gone = {one.run.name for one in collect(registry, runs, ONE)}
    assert gone == {"grpo-now", f"{name}-1"}  # its trainer is dead, and for long
    assert not (work / "checkpoints").exists()


def test_a_run_that_was_never_registered_stays_for_the_days_of_the_policy(registry, weights, runs):
    weights(runs / "sft-1" / "model", 1.0)
    assert [one.kept for one in survey(registry, runs, ONE)] == ["written in the last 1 days"]
    aged(runs / "sft-1")
    assert [one.kept for one in survey(registry, runs, ONE)] == [None]


def test_one_folder_of_two_versions_goes_only_when_neither_is_needed(registry, weights, runs, made):
    name = made(2)
    shared = runs / f"{name}-1" / "model"
    other = registry.register(name, shared, lineage=Lineage(stage="again"))
    registry.promote(name, other)
    assert fates(registry, runs)[f"{name}@1"] == "alias champion"


def test_models_of_others_are_no_hindrance_and_a_version_whose_tags_were_edited_keeps_its_weights(registry, runs, made):
    name = made(3)
    registry.promote(name, 3)
    registry.client.create_registered_model(f"{name}-of-others")
    registry.client.create_model_version(f"{name}-of-others", source=str(runs), run_id=None)
    registry.client.delete_model_version_tag(name, "1", "stage")
    kept = {one.run.name: one.kept for one in survey(registry, runs, ONE)}
    assert kept[f"{name}-1"] == "a version whose tags were edited"
    assert kept[f"{name}-2"] == "parent of champion (version 3)"


def test_what_is_registered_while_collecting_stays(registry, weights, runs, made):
    """Registration and removal take turns: either the version is there with its weights, or registering says they are gone."""
    for attempt in range(6):
        folder = weights(runs / f"late-{attempt}" / "model", float(attempt))
        aged(runs / f"late-{attempt}")
        outcome: list[int | str] = []

        def register(folder=folder, outcome=outcome) -> None:
            try:
                outcome.append(registry.register("late", folder, lineage=Lineage(stage=folder.parent.name)))
            except RegistryError as error:
                outcome.append(str(error))

        thread = threading.Thread(target=register)
        thread.start()
        time.sleep(0.01 * attempt)
        collect(registry, runs, ONE)
        thread.join()
        there = (folder / "model.safetensors").exists()
        assert there if isinstance(outcome[0], int) else "nothing to register" in outcome[0] and not there


def test_an_alias_that_moves_in_the_ui_while_collecting_keeps_its_version(registry, runs, made, monkeypatch):
    name = made(4)
    registry.promote(name, 4)

    def moved(*given):  # after the survey, and without the lock: as MLflow's UI does it
        found = survey(*given[:3], served=())
        registry.client.set_registered_model_alias(name, "champion", "1")
        return found

    monkeypatch.setattr(collection, "survey", lambda *given, **_: moved(*given))
    assert [one.versions for one in collect(registry, runs, ONE)] == [[f"{name}@2"]]
    assert registry.intact(name, 1).exists()
