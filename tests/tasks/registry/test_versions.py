import json
import struct
from pathlib import Path

import pytest
from mlflow.models import Model

from tasks.registry.versions import Lineage, Registry, RegistryError


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mlflow")
    registry = Registry(f"sqlite:///{folder / 'mlflow.db'}")
    registry.client.create_experiment("lakeloop", artifact_location=(folder / "artifacts").as_uri())
    return registry


def weights(folder: Path, value: float) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    header = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + struct.pack("<f", value))
    return folder


def test_a_version_tells_what_made_it(registry, tmp_path):
    lineage = Lineage(
        stage="grpo-1",
        parent=1,
        training_set="ts-1",
        lake_versions={"calls": 7, "rewards": 3},
        rubrics=["swe@1", "search@2"],
        commit="abc123",
        licences=["CC-BY-4.0", "MIT"],
        allowed_uses=["training"],
    )
    number = registry.register("told", weights(tmp_path / "w", 1.0), lineage=lineage)
    found = registry.version("told", number)
    assert found.lineage == lineage
    assert found.weights_path == (tmp_path / "w").resolve()
    assert len(found.weight_digest) == 64
    tags = registry.client.get_model_version("told", str(number)).tags
    assert tags["lake_versions"] == '{"calls": 7, "rewards": 3}'
    assert (tags["licences"], tags["allowed_uses"]) == ('["CC-BY-4.0", "MIT"]', '["training"]')
    assert (tags["training_set"], tags["commit"], tags["stage"]) == ("ts-1", "abc123", "grpo-1")


def test_a_version_has_the_signature_of_its_model(registry, tmp_path):
    folder = weights(tmp_path / "w", 3.0)
    (folder / "config.json").write_text('{"vocab_size": 2048}')
    number = registry.register("signed", folder, lineage=Lineage(stage="base"))
    held = registry.client.get_model_version("signed", str(number))
    assert held.source == f"runs:/{held.run_id}/model"
    described = Model.load(registry.client.download_artifacts(held.run_id, "model"))
    assert described.signature.inputs.to_dict()[0]["name"] == "input_ids"
    assert described.signature.outputs.inputs[0].shape == (-1, -1, 2048)
    assert described.flavors["lakeloop"]["weight_digest"] == registry.version("signed", number).weight_digest


def test_versions_count_up_and_the_same_weights_are_one_version(registry, tmp_path):
    base = Lineage(stage="base")
    first = registry.register("counted", weights(tmp_path / "a", 1.0), lineage=base)
    again = registry.register("counted", weights(tmp_path / "a", 1.0), lineage=base)
    second = registry.register("counted", weights(tmp_path / "b", 2.0), lineage=Lineage(stage="sft", parent=first))
    assert (first, again, second) == (1, 1, 2)
    assert [one.version for one in registry.versions("counted")] == [1, 2]


def test_the_alias_moves_forward_and_back(registry, tmp_path):
    for stage, value in (("base", 1.0), ("sft", 2.0)):
        registry.register("moved", weights(tmp_path / stage, value), lineage=Lineage(stage=stage))
    assert registry.promoted("moved") is None
    registry.promote("moved", 2)
    assert registry.promoted("moved") == 2
    assert registry.version("moved", 2).aliases == ["champion"]
    registry.promote("moved", 1)
    assert registry.promoted("moved") == 1


def test_nothing_is_promoted_under_an_unknown_name(registry):
    assert registry.promoted("never-registered") is None


def test_a_version_that_does_not_exist_is_not_promoted(registry, tmp_path):
    registry.register("few", weights(tmp_path / "w", 1.0), lineage=Lineage(stage="base"))
    with pytest.raises(RegistryError, match="no version 9 of few"):
        registry.promote("few", 9)


def test_weights_changed_after_registration_are_refused(registry, tmp_path):
    folder = weights(tmp_path / "w", 1.0)
    number = registry.register("fixed", folder, lineage=Lineage(stage="base"))
    assert registry.intact("fixed", number) == folder.resolve()
    weights(folder, 2.0)
    with pytest.raises(RegistryError, match="changed after they were registered"):
        registry.intact("fixed", number)


def test_weights_that_are_gone_are_named(registry, tmp_path):
    folder = weights(tmp_path / "w", 1.0)
    number = registry.register("gone", folder, lineage=Lineage(stage="base"))
    (folder / "model.safetensors").unlink()
    folder.rmdir()
    with pytest.raises(RegistryError, match=f"are gone: no folder {folder}"):
        registry.intact("gone", number)


def test_a_folder_without_weights_is_not_registered(registry, tmp_path):
    with pytest.raises(RegistryError, match="nothing to register"):
        registry.register("empty", tmp_path, lineage=Lineage(stage="base"))


def test_a_name_that_mlflow_would_read_as_a_path_is_refused(registry, tmp_path):
    with pytest.raises(RegistryError, match="no name for a registered model"):
        registry.register("a/b", weights(tmp_path / "w", 1.0), lineage=Lineage(stage="base"))
