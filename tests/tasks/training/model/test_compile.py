"""torch.compile changes the speed alone."""

import json
import os
import shutil
from collections.abc import Callable
from functools import partialmethod
from pathlib import Path

import pytest
import torch
from torch._dynamo.utils import counters
from torch.distributed.tensor import DTensor

from tasks.training.config import TrainConfig
from tasks.training.data import loading
from tasks.training.data.batch import batch_of
from tasks.training.errors import TrainingError
from tasks.training.model import policy, scoring
from tasks.training.ranks import joined

Configure = Callable[..., TrainConfig]


# What is ours is captured, traced and split into forward and backward pass alike by both; inductor, the default of
# `torch.compile`, then writes C++ for it, which takes a compiler two minutes.
BACKENDS = [
    "aot_eager",
    pytest.param(
        "inductor",
        marks=[
            pytest.mark.optional,
            pytest.mark.skipif("LAKELOOP_TEST_INDUCTOR" not in os.environ, reason="takes minutes"),
        ],
    ),
]


@pytest.mark.parametrize("backend", BACKENDS)
def test_compiled_layers_have_the_loss_and_gradient_of_plain_ones(
    backend: str, configure: Configure, tmp_path: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch._dynamo.reset()
    counters.clear()
    monkeypatch.setattr(torch.nn.Module, "compile", partialmethod(torch.nn.Module.compile, backend=backend))
    monkeypatch.setattr(shutil, "which", lambda name: name)  # a compiler
    shutil.copytree(model_folder, tmp_path / "model")
    shape = json.loads((tmp_path / "model" / "config.json").read_text())
    (tmp_path / "model" / "config.json").write_text(json.dumps(shape | {"num_hidden_layers": 1}))
    config = configure(model=tmp_path / "model")
    rows = loading.load(config)
    with joined(config) as ranks:
        seen = []
        for compiled in (False, True):
            model = policy.load(config.model_copy(update={"compile": compiled}), ranks)
            found = scoring.logprobs(model, batch_of([0, 1, 2], rows, ranks.device, config.shared_prefix))[0]
            found.sum().backward()
            gradients = [p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad for p in model.parameters()]
            seen.append([found.detach(), *gradients])
        graphs = counters["stats"]["unique_graphs"]
        scoring.logprobs(model, batch_of([3, 4, 5, 6, 7], rows, ranks.device, config.shared_prefix))
        assert counters["stats"]["unique_graphs"] == graphs > 0, "another batch was compiled anew"
    for expected, found in zip(*seen, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_without_a_compiler_it_is_refused(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configure(compile=True)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with joined(config) as ranks, pytest.raises(TrainingError, match=r"needs a C\+\+ compiler"):
        policy.load(config, ranks)
