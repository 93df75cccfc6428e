"""Stored tokens under another model: log-probs are the trainer's own, at the sampler's temperature, and whole."""

import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest

from tasks.training.config import TrainConfig
from tasks.training.errors import RowsRefused


@pytest.fixture
def rescore(configure, tmp_path):
    """The log-probs by row_index."""

    def go(**overrides):
        from tasks.training.rescore import rescore

        rescore(configure(**({"learning_rate": 0} | overrides)), tmp_path / "out.parquet")
        found = pq.read_table(tmp_path / "out.parquet").to_pydict()
        return {index: np.array(values) for index, values in zip(found["row_index"], found["logprobs"], strict=True)}

    return go


def test_the_model_that_sampled_gives_its_own_logprobs(rescore, sampled):
    found = rescore()
    assert list(found) == [row.row_index for row in sampled]
    for row in sampled:
        np.testing.assert_allclose(
            found[row.row_index], np.array(row.logprobs)[np.array(row.loss_mask) == 1], atol=1e-5
        )


def test_rows_in_any_order_keep_their_numbers(rescore, sampled, export):
    found = rescore(rows=export(sampled[::-1]))
    np.testing.assert_allclose(found[3], np.array(sampled[3].logprobs)[np.array(sampled[3].loss_mask) == 1], atol=1e-5)


def test_a_temperature_is_that_of_the_sampler(rescore, sampled, model_folder):
    import torch
    from transformers import LlamaForCausalLM

    row = sampled[0]
    model = LlamaForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    with torch.no_grad():
        every = torch.log_softmax(model(torch.tensor([row.input_ids])).logits[0] / 0.6, -1)
    own = every[torch.arange(len(row.input_ids) - 1), torch.tensor(row.input_ids[1:])].numpy()
    np.testing.assert_allclose(rescore(temperature=0.6)[0], own[np.array(row.loss_mask[1:]) == 1], atol=1e-5)


def test_rows_of_another_vocabulary_are_refused(rescore, sampled, export):
    foreign = sampled[0].model_copy(update={"input_ids": [999] * len(sampled[0].input_ids)})
    with pytest.raises(RowsRefused, match="outside the model's vocabulary"):
        rescore(rows=export([foreign]))


def test_as_a_command_it_ends_with_one_line_where_the_model_is_gone(configure, tmp_path):
    config: TrainConfig = configure(model=tmp_path / "gone", learning_rate=0)
    (tmp_path / "config.json").write_text(config.model_dump_json())
    command = [sys.executable, "-m", "tasks.training.rescore", "--config", str(tmp_path / "config.json"), "--out", "x"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 1
    assert "is not a model folder" in ended.stderr and "Traceback" not in ended.stderr
