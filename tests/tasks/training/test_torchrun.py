"""Two real ranks under torchrun, killed in the middle and started again."""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tasks.training.config import TrainConfig, launch_command
from tasks.training.folder import PROBE

ROOT = Path(__file__).parents[3]


def launch(config: TrainConfig, file: Path) -> subprocess.Popen[str]:
    file.write_text(config.model_dump_json())
    return subprocess.Popen(launch_command(file, 2), cwd=ROOT, stderr=subprocess.PIPE, text=True)


def wait_for(path: Path, process: subprocess.Popen[str], deadline_s: float) -> None:
    until = time.monotonic() + deadline_s
    while not path.exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < until, f"{path} did not appear in {deadline_s} s"
        time.sleep(0.01)


@pytest.mark.timeout(400)
def test_two_ranks_killed_and_resumed_reach_the_weights_of_one_undisturbed_rank(
    configure: Callable[..., TrainConfig], train: Callable[[TrainConfig], Path], tmp_path: Path
) -> None:
    shape = {"epochs": 6, "learning_rate": 0.002, "minibatch": 3, "weight_decay": 0.01, "warmup_steps": 5}
    two = configure(**shape, ranks=2, checkpoint_every=2, output=tmp_path / "two")
    first = launch(two, tmp_path / "two.json")
    try:
        wait_for(two.work_folder / "checkpoints" / "step-00000004", first, 150)
    finally:
        first.kill()  # torchrun alone: its ranks, each in a session of its own, must not outlive it
        first.communicate(timeout=30)  # returns when the last of them has let go of standard error
    assert not two.output.exists()

    second = launch(two, tmp_path / "two.json")
    try:
        said = second.communicate(timeout=200)[1]
    finally:
        second.kill()
    assert second.returncode == 0, said

    alone = configure(**shape, output=tmp_path / "one")
    one = train(alone)
    weights = [load_file(folder / "model.safetensors") for folder in (one, two.output)]
    for name, expected in weights[0].items():
        torch.testing.assert_close(weights[1][name], expected, rtol=0, atol=2e-5)

    probes = [json.loads((folder / PROBE).read_text()) for folder in (one, two.output)]
    for expected, found in zip(*probes, strict=True):
        for name in ("logprobs", "previous_logprobs"):
            torch.testing.assert_close(torch.tensor(found[name]), torch.tensor(expected[name]), rtol=0, atol=1e-3)

    logs = [
        [json.loads(line) for line in (c.work_folder / "metrics.jsonl").read_text().splitlines()] for c in (alone, two)
    ]
    assert [entry["step"] for entry in logs[1]] == [entry["step"] for entry in logs[0]]
    for expected, found in zip(*logs, strict=True):
        for name in expected.keys() - {"at", "tokens_per_second"}:
            assert found[name] == pytest.approx(expected[name], rel=1e-3, abs=1e-5), name
    assert not (two.work_folder / "checkpoints").exists()
