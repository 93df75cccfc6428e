import json
import struct
from pathlib import Path

import pytest

from tasks.registry.versions import Registry


@pytest.fixture(scope="session")
def own_mlflow(tmp_path_factory):
    """A registry in a database and a folder of its own."""

    def made():
        folder = tmp_path_factory.mktemp("mlflow")
        registry = Registry(f"sqlite:///{folder / 'mlflow.db'}")
        registry.client.create_experiment("lakeloop", artifact_location=(folder / "artifacts").as_uri())
        return registry

    return made


@pytest.fixture(scope="session")
def weights():
    """Writes a folder with one safetensors file that holds one number."""

    def write(folder: Path, value: float) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        header = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
        data = len(header).to_bytes(8, "little") + header + struct.pack("<f", value)
        (folder / "model.safetensors").unlink(missing_ok=True)
        (folder / "model.safetensors").write_bytes(data)
        return folder

    return write
