import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tasks.serving.errors import ModelError
from tasks.serving.weights import EMBEDDING, HEAD, servable, tensors


def folder(path, names, **config):
    path.mkdir()
    draw = np.random.default_rng(0)
    save_file({name: draw.standard_normal((5, 3), dtype=np.float32) for name in names}, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps({"model_type": "llama", **config}))
    (path / "tokenizer.json").write_text("{}")
    return path


def test_a_model_with_its_own_output_layer_is_served_as_it_is(tmp_path):
    untied = folder(tmp_path / "m", [EMBEDDING, HEAD])
    assert servable(untied, tmp_path / "view") == untied
    assert not (tmp_path / "view").exists()


def test_a_tied_model_is_served_with_the_embedding_as_output_layer(tmp_path):
    tied = folder(tmp_path / "m", [EMBEDDING, "model.norm.weight"], tie_word_embeddings=True)
    view = servable(tied, tmp_path / "view")
    loaded = {name: array for file in view.glob("*.safetensors") for name, array in load_file(file).items()}
    original = load_file(tied / "model.safetensors")
    assert set(loaded) == {*original, HEAD}
    assert np.array_equal(loaded[HEAD], original[EMBEDDING])
    index = json.loads((view / "model.safetensors.index.json").read_text())["weight_map"]
    assert index == {HEAD: "part-output-layer.safetensors", **dict.fromkeys(original, "part-model.safetensors")}
    config = json.loads((view / "config.json").read_text())
    assert config == {"model_type": "llama", "tie_word_embeddings": False}
    assert (view / "tokenizer.json").read_text() == "{}"


def test_making_the_view_again_replaces_it(tmp_path):
    tied = folder(tmp_path / "m", [EMBEDDING])
    (servable(tied, tmp_path / "view") / "left-over").touch()
    assert not (servable(tied, tmp_path / "view") / "left-over").exists()


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b"garbage" * 9, lambda b: b[:4], lambda b: b""])
def test_a_damaged_file_is_refused_by_name(tmp_path, damage):
    file = folder(tmp_path / "m", [EMBEDDING]) / "model.safetensors"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ModelError, match=r"model\.safetensors is"):
        tensors(tmp_path / "m")


def test_a_folder_without_weights_is_refused(tmp_path):
    with pytest.raises(ModelError, match="nothing to load"):
        tensors(tmp_path)
