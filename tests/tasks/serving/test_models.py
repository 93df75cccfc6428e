import json
import os
import shutil
from pathlib import Path

import pytest

from lakehouse.home import Home
from tasks.serving.errors import EngineMissing, ModelError
from tasks.serving.launch import engine
from tasks.serving.models import TINY, check, resolve

FILES = ["config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"]


def folder(path: Path, files=FILES) -> Path:
    path.mkdir()
    for name in files:
        (path / name).write_text("{}")
    return path


def test_a_complete_folder_is_used_as_it_is(tmp_path):
    assert resolve(str(folder(tmp_path / "m")), Home(tmp_path)) == tmp_path / "m"


def test_a_template_inside_the_tokenizer_config_counts(tmp_path):
    made = folder(tmp_path / "m", FILES[:3])
    (made / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    assert check(made) == made


@pytest.mark.parametrize(
    ("gone", "named"),
    [
        ("config.json", "config.json"),
        ("model.safetensors", "weights"),
        ("tokenizer.json", "a tokenizer"),
        ("chat_template.jinja", "a chat template"),
    ],
)
def test_a_folder_that_lacks_something_is_refused_by_what_it_lacks(tmp_path, gone, named):
    made = folder(tmp_path / "m", [name for name in FILES if name != gone])
    with pytest.raises(ModelError, match=f"lacks {named}"):
        resolve(str(made), Home(tmp_path))


@pytest.mark.parametrize("name", ["tinny", "./nowhere", "a/b/c"])
def test_an_unknown_name_says_what_could_be_given(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match="give tiny, smollm2, a folder that exists"):
        resolve(name, Home(tmp_path))


def test_smollm2_is_taken_from_the_home_folder_once_it_was_made(tmp_path):
    (tmp_path / "models").mkdir()
    made = folder(tmp_path / "models" / "smollm2")
    assert resolve("smollm2", Home(tmp_path)) == made


def test_without_an_engine_environment_the_error_says_how_to_get_one(tmp_path):
    with pytest.raises(EngineMissing, match=r"make install-engine.*LAKELOOP_ENGINE_URL"):
        engine(folder(tmp_path / "m"), name="m", port=1, python=tmp_path / "python", max_model_len=64)


@pytest.mark.skipif(not any(TINY.glob("*.safetensors")), reason="the tiny model's weights are not in this checkout")
def test_the_shipped_model_is_complete(tmp_path, monkeypatch):
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))
    python = Path(shutil.which("python3") or os.sys.executable)
    started = engine(resolve("tiny", Home(tmp_path)), name="tiny", port=1, python=python, max_model_len=64)
    assert "VLLM_CPU_NUM_OF_RESERVED_CPU" not in started.environment
    assert started.command[started.command.index("--host") + 1] == "127.0.0.1"
    assert started.command[started.command.index("--generation-config") + 1] == "vllm"
