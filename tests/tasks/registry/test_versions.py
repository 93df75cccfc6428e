from pathlib import Path

import pytest
from mlflow.models import Model

from tasks.registry import artifacts
from tasks.registry.versions import REMOVED, TAINTED, Lineage, RegistryError


def test_a_version_tells_what_made_it(registry, weights, tmp_path):
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


def test_a_version_has_the_signature_of_its_model(registry, weights, tmp_path):
    folder = weights(tmp_path / "w", 3.0)
    (folder / "config.json").write_text('{"vocab_size": 2048}')
    number = registry.register("signed", folder, lineage=Lineage(stage="base"))
    held = registry.client.get_model_version("signed", str(number))
    assert held.source == f"runs:/{held.run_id}/model"
    described = Model.load(registry.client.download_artifacts(held.run_id, "model"))
    assert described.signature.inputs.to_dict()[0]["name"] == "input_ids"
    assert described.signature.outputs.inputs[0].shape == (-1, -1, 2048)
    assert described.flavors["lakeloop"]["weight_digest"] == registry.version("signed", number).weight_digest


def test_the_files_of_a_version_are_on_the_disk_once_and_laid_out_as_mlflow_reads_them(registry, weights, tmp_path):
    folder = weights(tmp_path / "w", 4.0)
    (folder / "config.json").write_text('{"vocab_size": 8}')
    (folder / "tokenizer.json").write_text("{}")
    (folder / "DONE").write_text("{}")
    held = registry.version("linked", registry.register("linked", folder, lineage=Lineage(stage="base")))
    place = Path(registry.client.get_run(held.run_id).info.artifact_uri.removeprefix("file://"))
    there = {str(file.relative_to(place)) for file in place.rglob("*") if file.is_file()}
    assert there == {
        "model/MLmodel", "model/weights.json", "model/model/model.safetensors", "model/model/config.json",
        "model/model/tokenizer.json", "model/components/tokenizer/config.json", "model/components/tokenizer/tokenizer.json",
    }  # fmt: skip
    assert (place / "model/model/model.safetensors").samefile(folder / "model.safetensors")
    assert Model.load(str(place / "model")).flavors["transformers"]["torch_dtype"] == "torch.float32"


def test_where_nothing_can_be_linked_the_files_are_uploaded(registry, weights, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError("another disk")

    monkeypatch.setattr(artifacts.os, "link", refuse)
    monkeypatch.setattr(artifacts.fcntl, "ioctl", refuse)
    folder = weights(tmp_path / "w", 5.0)
    held = registry.version("uploaded", registry.register("uploaded", folder, lineage=Lineage(stage="base")))
    got = Path(registry.client.download_artifacts(held.run_id, "model/model/model.safetensors"))
    assert got.read_bytes() == (folder / "model.safetensors").read_bytes()
    assert not got.samefile(folder / "model.safetensors")


def test_a_server_that_keeps_its_artifacts_elsewhere_gets_them_over_the_wire(registry, weights, tmp_path, monkeypatch):
    """An adopted server: its folder is not this home's, and nothing is put where nobody looks."""
    monkeypatch.setattr(artifacts, "_local", lambda *_: None)
    folder = weights(tmp_path / "w", 6.0)
    held = registry.version("elsewhere", registry.register("elsewhere", folder, lineage=Lineage(stage="base")))
    got = Path(registry.client.download_artifacts(held.run_id, "model/model/model.safetensors"))
    assert got.read_bytes() == (folder / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("tag", "why"), [(TAINTED, "is tainted: erasure er-1"), (REMOVED, "were removed: er-1. Train it anew")]
)
def test_a_version_that_is_tainted_or_whose_weights_were_removed_is_neither_promoted_nor_given_out(
    registry, weights, tmp_path, tag, why
):
    name = f"refused-{tag}"
    old = registry.register(name, weights(tmp_path / "old", 1.0), lineage=Lineage(stage="base"))
    number = registry.register(name, weights(tmp_path / "w", 2.0), lineage=Lineage(stage="sft"))
    registry.promote(name, old)
    registry.tag(name, number, tag, "er-1")
    for alias in ("champion", "challenger"):
        with pytest.raises(RegistryError, match=why):
            registry.promote(name, number, alias)
    with pytest.raises(RegistryError, match=why):
        registry.intact(name, number)
    assert registry.promoted(name) == old
    assert registry.promoted(name, "challenger") is None


def test_a_card_is_the_readme_and_the_description_cut_to_what_mlflow_holds(registry, weights, tmp_path):
    number = registry.register("told-of", weights(tmp_path / "w", 1.0), lineage=Lineage(stage="base"))
    registry.describe("told-of", number, "# short")
    assert registry.client.get_model_version("told-of", str(number)).description == "# short"
    registry.describe("told-of", number, "long " * 2000)
    found = registry.client.get_model_version("told-of", str(number))
    assert len(found.description) == 5000
    assert "README.md" in found.description[-100:]
    card = Path(registry.client.download_artifacts(found.run_id, "model/README.md"))
    assert card.read_text() == "long " * 2000


def test_versions_count_up_and_the_same_weights_are_one_version(registry, weights, tmp_path):
    base = Lineage(stage="base")
    first = registry.register("counted", weights(tmp_path / "a", 1.0), lineage=base)
    again = registry.register("counted", weights(tmp_path / "a", 1.0), lineage=base)
    updated = registry.register(
        "counted", weights(tmp_path / "a", 1.0), lineage=base.model_copy(update={"commit": "later"})
    )
    second = registry.register("counted", weights(tmp_path / "b", 2.0), lineage=Lineage(stage="sft", parent=first))
    assert (first, again, updated, second) == (1, 1, 1, 2)
    assert [one.version for one in registry.versions("counted")] == [1, 2]


def test_the_alias_moves_forward_and_back(registry, weights, tmp_path):
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


def test_a_version_that_does_not_exist_is_not_promoted(registry, weights, tmp_path):
    registry.register("few", weights(tmp_path / "w", 1.0), lineage=Lineage(stage="base"))
    with pytest.raises(RegistryError, match="no version 9 of few"):
        registry.promote("few", 9)


def test_weights_changed_after_registration_are_refused(registry, weights, tmp_path):
    folder = weights(tmp_path / "w", 1.0)
    number = registry.register("fixed", folder, lineage=Lineage(stage="base"))
    assert registry.intact("fixed", number) == folder.resolve()
    weights(folder, 2.0)
    with pytest.raises(RegistryError, match="changed after they were registered"):
        registry.intact("fixed", number)


def test_weights_that_are_gone_are_named(registry, weights, tmp_path):
    folder = weights(tmp_path / "w", 1.0)
    number = registry.register("gone", folder, lineage=Lineage(stage="base"))
    (folder / "model.safetensors").unlink()
    folder.rmdir()
    with pytest.raises(RegistryError, match=f"are gone: none in {folder}"):
        registry.intact("gone", number)


def test_a_folder_without_weights_is_not_registered(registry, tmp_path):
    with pytest.raises(RegistryError, match="nothing to register"):
        registry.register("empty", tmp_path, lineage=Lineage(stage="base"))


def test_a_name_that_mlflow_would_read_as_a_path_is_refused(registry, weights, tmp_path):
    with pytest.raises(RegistryError, match="no name for a registered model"):
        registry.register("a/b", weights(tmp_path / "w", 1.0), lineage=Lineage(stage="base"))
