import os

import pytest
from pydantic import ValidationError

from tasks.stack.settings import Settings


@pytest.fixture(autouse=True)
def _clean(monkeypatch, tmp_path):
    for name in Settings.model_fields:
        monkeypatch.delenv(f"LAKELOOP_{name.upper()}", raising=False)
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))


def test_every_setting_has_a_working_default():
    settings = Settings()
    assert (settings.prefect_port, settings.mlflow_port, settings.engine_port, settings.gateway_port) == (
        4200,
        5000,
        8000,
        8900,
    )
    assert settings.model_name == "tiny"
    assert settings.engine == "http://127.0.0.1:8000"


def test_databases_lie_in_the_home_folder_unless_set(monkeypatch, tmp_path):
    assert str(tmp_path) in Settings().prefect_database_url
    assert str(tmp_path) in Settings().mlflow_database_url
    monkeypatch.setenv("LAKELOOP_MLFLOW_DATABASE", "postgresql://db/mlflow")
    assert Settings().mlflow_database_url == "postgresql://db/mlflow"


def test_boxes_find_the_gateway_where_their_uid_may_enter_and_no_two_homes_share_a_door(monkeypatch, tmp_path):
    first = Settings().door
    assert first is not None
    assert (tmp_path in first.parents) == (os.geteuid() != 0)
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path / "other"))
    assert Settings().door != first
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    assert Settings().door == tmp_path / "other" / "gateway" / "door" / "gateway.sock" or len(str(tmp_path)) > 70
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path / ("long" * 30)))
    assert Settings().door is None


def test_an_engine_elsewhere_takes_the_place_of_ours(monkeypatch):
    monkeypatch.setenv("LAKELOOP_ENGINE_URL", "http://gpu-box:8000/")
    assert Settings().engine == "http://gpu-box:8000"


@pytest.mark.parametrize("given", [{"prefect_port": 0}, {"engine_url": "gpu-box:8000"}, {"prefekt_port": 4201}])
def test_what_is_no_setting_is_refused(given):
    with pytest.raises(ValidationError):
        Settings(**given)


def test_a_child_process_reads_the_same_settings(monkeypatch):
    settings = Settings(prefect_port=4299, model="smollm2")
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    assert Settings() == settings


def test_a_later_command_finds_what_up_was_given_until_down():
    Settings(mlflow_port=5099, model="smollm2").remember()
    assert (Settings().mlflow_port, Settings().model) == (5099, "smollm2")
    assert Settings(model="tiny").model == "tiny"
    Settings.forget()
    assert Settings().mlflow_port == 5000


@pytest.mark.parametrize(
    ("model", "name"), [("tiny", "tiny"), ("/models/My-Model", "my-model"), ("Qwen/Qwen2.5-0.5B", "qwen2.5-0.5b")]
)
def test_the_served_name_is_the_last_part_of_the_model(model, name):
    assert Settings(model=model).model_name == name


def test_what_is_remembered_is_for_its_owner_only(monkeypatch, tmp_path):
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))
    (tmp_path / "stack.json").touch(mode=0o644)
    Settings(mlflow_database="postgresql://me:secret@db/mlflow").remember()
    assert (tmp_path / "stack.json").stat().st_mode & 0o777 == 0o600
    assert Settings().mlflow_database == "postgresql://me:secret@db/mlflow"
