"""A teacher or reference must be a model of the rows' own tokens; else the run does not start."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.training.config import TrainConfig
from tasks.training.data import loading
from tasks.training.errors import TrainingError

Configure = Callable[..., TrainConfig]


@pytest.fixture
def other(model_folder: Path, tmp_path: Path) -> Path:
    return shutil.copytree(model_folder, tmp_path / "other")


def changed(file: Path, **values: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def permuted(tokenizer: Path) -> None:
    told = json.loads(tokenizer.read_text())
    told["model"]["vocab"]["5"], told["model"]["vocab"]["6"] = 6, 5
    tokenizer.write_text(json.dumps(told))


SPOILT: dict[str, Callable[[Path], object]] = {
    "has another tokenizer": lambda other: permuted(other / "tokenizer.json"),
    "cannot be read": lambda other: (other / "tokenizer.json").write_text("{"),
    "'s vocabulary of 60": lambda other: changed(other / "config.json", vocab_size=60),
    "the 16 tokens of the .*'s context": lambda other: changed(other / "config.json", max_position_embeddings=16),
    "is not a model folder": shutil.rmtree,
}


@pytest.mark.parametrize("why", SPOILT)
@pytest.mark.parametrize("what", ["teacher", "reference"])
def test_another_model_that_does_not_fit_the_rows_is_refused_by_name(
    what: str, why: str, configure: Configure, other: Path
) -> None:
    asked = {
        "teacher": {"objective": "distill", "teacher": other},
        "reference": {"kl": {"coefficient": 0.1}, "reference": other},
    }
    config = configure(**asked[what])
    assert len(loading.load(config)) == 10
    SPOILT[why](other)
    with pytest.raises(TrainingError, match=why) as refused:
        loading.load(config)
    assert what in str(refused.value) or "tokenizer.json cannot" in str(refused.value)
