"""A tiny random model folder, rows sampled from it, and runs in this process.

torch is imported late, after `tasks.training` has told OpenMP how to wait.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from lakehouse.records import TrainingRow
from tasks.training.config import TrainConfig
from tasks.training.data import loading

VOCAB = 64


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama with grouped heads and tied embeddings, its tokenizer and chat template."""
    import torch
    from tokenizers import Tokenizer, models
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(7)
    folder = tmp_path_factory.mktemp("model")
    shape = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        initializer_range=0.3,
    )
    LlamaForCausalLM(shape).save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({str(i): i for i in range(VOCAB)}, unk_token="0"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="1").save_pretrained(folder)
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    (folder / "LICENSE").write_text("Apache-2.0")
    return folder


@pytest.fixture(scope="session")
def sampled(model_folder: Path) -> list[TrainingRow]:
    """Ten rows of 9 to 39 random tokens with the model's own log-probs; even rows are rewarded. The last ends untrained."""
    import torch
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    rng = np.random.default_rng(3)
    rows = []
    for index in range(10):
        length = int(rng.integers(9, 40))
        ids = rng.integers(2, VOCAB, length)
        mask = np.zeros(length, int)
        mask[4 : length - (3 if index == 9 else 0)] = 1
        with torch.no_grad():
            every = torch.log_softmax(model(torch.from_numpy(ids)[None]).logits[0], -1)
        logprobs = np.r_[0.0, every[torch.arange(length - 1), torch.from_numpy(ids[1:])].numpy()] * mask
        rows.append(
            TrainingRow(
                training_set_id="ts-1",
                row_index=index,
                episode_id=f"ep-{index}",
                group_id="gr-1",
                problem_kind="search",
                input_ids=ids.tolist(),
                loss_mask=mask.tolist(),
                logprobs=logprobs.tolist(),
                weight_versions=np.where(mask == 1, 3, -1).tolist(),
                reward=float(index % 2 == 0),
                advantage=1.0 if index % 2 == 0 else -1.0,
            )
        )
    return rows


@pytest.fixture
def export(tmp_path: Path) -> Callable[..., Path]:
    def write(rows: list[TrainingRow], name: str = "rows.parquet") -> Path:
        draft = tmp_path / f".{name}"  # a run of before may be reading the file of this name
        pyarrow.parquet.write_table(pa.Table.from_pylist([row.model_dump() for row in rows]), draft)
        return draft.replace(tmp_path / name)

    return write


@pytest.fixture
def configure(tmp_path: Path, model_folder: Path, sampled: list[TrainingRow], export: Callable[..., Path]):
    """A config over the sampled rows; keywords override."""

    def build(**overrides: object) -> TrainConfig:
        settings: dict[str, object] = {
            "objective": {"name": "grpo", "aggregation": "token", "clip_high": 0.28},
            "model": model_folder,
            "output": tmp_path / "output",
            "learning_rate": 0.01,
            "minibatch": 5,
            "micro_batch_tokens": 64,
            "max_seq_len": 64,
            "device": "cpu",
        }
        if "rows" not in overrides:
            settings["rows"] = export(sampled)
        return TrainConfig.model_validate(settings | overrides)

    return build


@pytest.fixture
def train() -> Callable[[TrainConfig], Path]:
    """Runs a config in this process and gives the output folder."""
    from tasks.training.run import run

    def go(config: TrainConfig) -> Path:
        run(config, loading.load(config))
        return config.output

    return go
