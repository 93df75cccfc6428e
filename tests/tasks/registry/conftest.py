import pytest

from tasks.registry.versions import Registry


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="session")
def registry(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mlflow")
    registry = Registry(f"sqlite:///{folder / 'mlflow.db'}")
    registry.client.create_experiment("lakeloop", artifact_location=(folder / "artifacts").as_uri())
    return registry
