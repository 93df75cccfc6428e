"""Two nodes, each a torchrun of its own on this machine: they find each other, and end together when one is lost."""

import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tasks.training.config import TrainConfig, launch_command

ROOT = Path(__file__).parents[3]


def node(config: TrainConfig, file: Path, meeting: str) -> subprocess.Popen[str]:
    file.write_text(config.model_dump_json())
    torchrun, module, name, *rest = launch_command(file, 1, nodes=2, rendezvous=meeting)
    here = "--local-addr=127.0.0.1"  # the host's name need not resolve where tests run
    return subprocess.Popen([torchrun, module, name, here, *rest], cwd=ROOT, stderr=subprocess.PIPE, text=True)


@pytest.mark.timeout(400)
def test_two_nodes_train_as_one_rank_and_end_with_the_reason_when_one_is_lost(
    configure: Callable[..., TrainConfig], train: Callable[[TrainConfig], Path], tmp_path: Path
) -> None:
    shape = {"epochs": 15, "minibatch": 5, "learning_rate": 1e-4}
    config = configure(**shape, ranks=2, checkpoint_every=2, output=tmp_path / "two")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meeting = f"127.0.0.1:{free.getsockname()[1]}"
    nodes = [node(config, tmp_path / "run.json", meeting) for _ in range(2)]
    reached = config.work_folder / "checkpoints" / "step-00000004"
    try:
        until = time.monotonic() + 200
        while not reached.exists():
            assert all(one.poll() is None for one in nodes), [one.communicate()[1] for one in nodes]
            assert time.monotonic() < until
            time.sleep(0.01)
        nodes[1].kill()  # torchrun alone: its rank, in a session of its own, must not outlive it
        nodes[1].communicate(timeout=60)  # returns when the rank too has let go of standard error
        said = nodes[0].communicate(timeout=120)[1]
    finally:
        for one in nodes:
            one.kill()
    assert nodes[0].returncode not in (0, None)
    assert "another of the 2 ranks is gone" in said
    assert not config.output.exists()

    resumed = train(config.model_copy(update={"ranks": 1, "checkpoint_every": 0}))
    undisturbed = train(configure(**shape, output=tmp_path / "one"))
    weights = [load_file(path / "model.safetensors") for path in (undisturbed, resumed)]
    for name, expected in weights[0].items():
        torch.testing.assert_close(weights[1][name], expected, rtol=0, atol=2e-5)
