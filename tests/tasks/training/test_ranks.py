"""Several ranks are one: whole programs, forked from a server that has torch already, killed and started again."""

import contextlib
import fcntl
import json
import multiprocessing
import os
import random
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from lakehouse.records import TrainingRow
from tasks.training import folder
from tasks.training.config import TrainConfig
from tasks.training.errors import TrainingError

Configure = Callable[..., TrainConfig]
Train = Callable[[TrainConfig], Path]
Export = Callable[..., Path]

SHAPE = {"epochs": 3, "learning_rate": 0.002, "minibatch": 3, "weight_decay": 0.01, "warmup_steps": 2}
TOLERANCE = 2e-5  # of a weight after nine steps: ranks add up in another order
DEADLINE_S = 200
PROGRAM = """
import os, resource, runpy, sys
os.environ.update(environment)
sys.argv = ["tasks.training", "--config", config]
os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
if room:
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
runpy.run_module("tasks.training", run_name="__main__")
"""
SLOW = """
import os, time
os.environ.update(environment)
from tasks.training.config import TrainConfig
from tasks.training.ranks import joined
def work():
    time.sleep(13 if ranks.rank == slow else 0)
    return ranks.rank
with joined(TrainConfig.model_validate_json(config)) as ranks:
    ranks.barrier()
    assert ranks.each(work) == [0, 1] if slow else ranks.only_first(work) == (None if ranks.rank else 0)
"""
server = multiprocessing.get_context("forkserver")
server.set_forkserver_preload(["tasks.training.run", "tasks.training.model.lora"])


@dataclass
class Started:
    """A run on its way: `python -m tasks.training` once per rank, with torchrun's environment."""

    config: TrainConfig
    ranks: list[multiprocessing.process.BaseProcess]
    said_in: Path

    @property
    def said(self) -> str:
        return self.said_in.read_text() if self.said_in.exists() else ""

    def until(self, reached: Callable[[], bool]) -> None:
        give_up = time.monotonic() + DEADLINE_S
        while not reached():
            assert all(rank.exitcode is None for rank in self.ranks), self.said
            assert time.monotonic() < give_up, self.said
            time.sleep(0.005)

    def statuses(self) -> list[int | None]:
        for rank in self.ranks:
            rank.join(DEADLINE_S)
        return [rank.exitcode for rank in self.ranks]

    def finished(self) -> Path:
        assert self.statuses() == [0] * len(self.ranks), self.said
        return self.config.output


Start = Callable[..., Started]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    running = []

    def go(config: TrainConfig, room: int = 0) -> Started:
        number = len(running)
        file = tmp_path / f"config-{number}.json"
        file.write_text(config.model_dump_json())
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        said = tmp_path / f"said-{number}"
        ranks = []
        for rank in range(config.ranks):
            own = environment(rank, config.ranks, port)
            told = {"environment": own, "config": str(file), "said": str(said), "room": room}
            ranks.append(server.Process(target=exec, args=(PROGRAM, told)))
        for one in ranks:
            one.start()
        running.append(Started(config, ranks, said))
        return running[-1]

    yield go
    for run in running:
        for rank in run.ranks:
            with contextlib.suppress(ValueError):
                rank.kill()
                rank.join(10)


def environment(rank: int, world: int, port: int) -> dict[str, str]:
    """As torchrun sets it on one node."""
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world)} | meeting


def assert_same(one: Path, other: Path, *, within: float, name: str = "model") -> None:
    weights = [load_file(path / f"{name}.safetensors") for path in (one, other)]
    assert weights[0].keys() == weights[1].keys()
    for name, expected in weights[0].items():
        torch.testing.assert_close(weights[1][name], expected, rtol=0, atol=within)


def logged(config: TrainConfig) -> list[dict[str, float]]:
    file = config.work_folder / "metrics.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def checkpoint(config: TrainConfig, step: int) -> Path:
    return config.work_folder / "checkpoints" / f"step-{step:08d}"


def test_weights_and_metrics_are_those_of_one_rank_on_any_number_and_after_the_loss_of_one(
    configure: Configure, train: Train, start: Start, tmp_path: Path
) -> None:
    shape = SHAPE | {"epochs": 6, "learning_rate": 5e-4}
    alone = configure(**shape, output=tmp_path / "one")
    two = configure(**shape, ranks=2, checkpoint_every=2, output=tmp_path / "two")
    broken = start(two)
    one = train(alone)
    broken.until(checkpoint(two, 4).exists)
    broken.ranks[1].kill()
    lost_at = time.monotonic()
    assert broken.statuses() == [1, -signal.SIGKILL]
    assert time.monotonic() - lost_at < 60  # the wait of a rank for another is 600 s
    assert "rank 0: another of the 2 ranks is gone" in broken.said
    assert not two.output.exists()

    shutil.copytree(two.work_folder, tmp_path / "four.work")
    four = configure(**shape, ranks=4, output=tmp_path / "four")
    wider = start(four)
    assert_same(one, train(two.model_copy(update={"ranks": 1, "checkpoint_every": 0})), within=TOLERANCE)
    assert_same(one, train(configure(**shape, micro_batch_tokens=40, output=tmp_path / "finer")), within=TOLERANCE)
    assert_same(one, wider.finished(), within=TOLERANCE)
    expected = logged(alone)
    for config in (two, four):
        assert [entry["step"] for entry in logged(config)] == [entry["step"] for entry in expected]
        for entry, found in zip(expected, logged(config), strict=True):
            for name in ("loss", "grad_norm", "tokens_trained", "entropy"):
                assert found.get(name) == pytest.approx(entry.get(name), rel=1e-3, abs=1e-5), name
        assert not (config.work_folder / "checkpoints").exists()


def test_a_rank_says_its_own_reason_and_not_that_of_the_first(
    configure: Configure, start: Start, tmp_path: Path
) -> None:
    file, said = tmp_path / "run.json", tmp_path / "said"
    file.write_text(configure(ranks=2, rows=tmp_path / "not-here.parquet").model_dump_json())
    told = {"environment": environment(1, 2, 1), "config": str(file), "said": str(said), "room": 0}
    second = server.Process(target=exec, args=(PROGRAM, told))
    second.start()
    second.join(DEADLINE_S)
    assert second.exitcode == 1
    assert "training stopped: rank 1: no training rows at" in said.read_text()

    taken = configure(ranks=2)
    taken.work_folder.mkdir()
    with (taken.work_folder / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        both = start(taken)
        assert both.statuses() == [1, 1]
    assert both.said.count("already trains in") == both.said.count("training stopped") == 1


def test_a_rank_that_is_long_at_work_is_waited_for(configure: Configure) -> None:
    config = configure(ranks=2, timeout_s=6).model_dump_json()
    programs = []
    for slow in (0, 1):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        for rank in range(2):
            told = {"environment": environment(rank, 2, port), "config": config, "slow": slow}
            programs.append(server.Process(target=exec, args=(SLOW, told)))
            programs[-1].start()
    for one in programs:
        one.join(DEADLINE_S)
    assert [one.exitcode for one in programs] == [0] * 4


@pytest.fixture(scope="module")
def untied(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Path:
    """A Qwen3: norms inside the heads, and a head of its own."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(5)
    path = tmp_path_factory.mktemp("qwen") / "qwen3"
    shutil.copytree(model_folder, path, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    shape = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "head_dim": 8}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": False}
    Qwen3ForCausalLM(Qwen3Config(**shape, **heads, initializer_range=0.3)).save_pretrained(path)
    return path


def test_matrices_split_over_two_ranks_learn_what_whole_ones_do(
    configure: Configure, train: Train, start: Start, tmp_path: Path, untied: Path, model_folder: Path
) -> None:
    shape = SHAPE | {"epochs": 1, "grad_clip": 0.1, "agreement_bound": None}
    for model in (model_folder, untied):
        one = train(configure(**shape, model=model, output=tmp_path / model.name / "one"))
        split = configure(
            **shape, model=model, ranks=2, tensor_parallel=2, checkpoint_every=1, output=tmp_path / model.name / "split"
        )
        assert_same(one, start(split).finished(), within=TOLERANCE)
    uneven = start(configure(**shape, ranks=4, tensor_parallel=4, output=tmp_path / "uneven"))
    assert uneven.statuses() == [1] * 4
    assert "num_key_value_heads=2, which tensor_parallel=4 does not divide" in uneven.said


def test_pairs_and_values_on_two_ranks_are_those_of_one(
    configure: Configure, train: Train, start: Start, tmp_path: Path, sampled: list[TrainingRow], export: Export
) -> None:
    rows = {
        "dpo": [row.model_copy(update={"group_id": f"gr-{row.row_index // 2}"}) for row in sampled],
        "ppo": [row.model_copy(update={"advantage": row.reward}) for row in sampled],
    }
    for name, of_name in rows.items():
        told = SHAPE | {"objective": name, "rows": export(of_name, f"{name}.parquet"), "learning_rate": 5e-4}
        two = start(configure(**told, ranks=2, output=tmp_path / name / "two"))
        one = train(configure(**told, output=tmp_path / name / "one"))
        assert_same(one, two.finished(), within=TOLERANCE)
    assert_same(one / "critic", tmp_path / "ppo" / "two" / "critic", within=TOLERANCE, name="value_head")


def test_adapters_on_two_ranks_killed_and_gone_on_with_on_one_are_those_of_one(
    configure: Configure, train: Train, start: Start, tmp_path: Path
) -> None:
    shape = SHAPE | {"lora": {"rank": 4, "alpha": 8}, "learning_rate": 5e-4}
    two = configure(**shape, ranks=2, checkpoint_every=2, output=tmp_path / "two")
    broken = start(two)
    one = train(configure(**shape, output=tmp_path / "one"))
    broken.until(checkpoint(two, 4).exists)
    for rank in broken.ranks:
        rank.kill()
    broken.statuses()
    gone_on = train(two.model_copy(update={"ranks": 1, "checkpoint_every": 0}))
    assert_same(one, gone_on, within=TOLERANCE)
    assert_same(one / "adapter", gone_on / "adapter", within=TOLERANCE, name="adapter_model")


@pytest.mark.parametrize("ranks", [1, 2])
def test_killed_at_any_point_and_resumed_a_run_ends_with_the_same_bits(
    ranks: int, configure: Configure, start: Start, tmp_path: Path
) -> None:
    shape = SHAPE | {"epochs": 4, "checkpoint_every": 1, "ranks": ranks}
    undisturbed = start(configure(**shape, output=tmp_path / "undisturbed")).finished()
    config = configure(**shape, output=tmp_path / "killed")
    when = random.Random(20)
    for steps in (2, 5, 8):
        run = start(config)
        run.until(lambda enough=steps: len(logged(config)) > enough)
        time.sleep(when.uniform(0, 0.1))
        os.kill(when.choice(run.ranks).pid, signal.SIGKILL)
        run.statuses()
    assert_same(undisturbed, start(config).finished(), within=0)


def test_a_disk_without_room_is_named_and_leaves_nothing_half_written(
    configure: Configure, start: Start, tmp_path: Path
) -> None:
    config = configure(**SHAPE | {"epochs": 1}, checkpoint_every=2, output=tmp_path / "none")
    run = start(config, room=64 << 10)  # a file may not grow beyond: the log fits, weights do not
    assert run.statuses() == [1]
    assert len(logged(config)) > 3  # training went on
    assert "the checkpoint of step 2" in run.said
    assert "File too large" in run.said.split("Training goes on; there is none yet", maxsplit=1)[0]
    assert "the model could not be written" in run.said.splitlines()[-1]
    assert not config.output.exists()
    assert not list(tmp_path.rglob(".*.partial"))


def test_a_step_does_not_wait_for_the_disk_and_what_is_written_is_the_step_it_is_named_after(
    configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    from tasks.training.model import policy
    from tasks.training.ranks import joined
    from tasks.training.saving.checkpoint import Checkpoints, Position
    from tasks.training.step import optimiser

    config = configure(checkpoint_every=1)
    config.work_folder.mkdir()
    go_on, finish = threading.Event(), folder.finish
    monkeypatch.setattr(folder, "finish", lambda *given: go_on.wait(60) and finish(*given))
    with joined(config) as ranks:
        model = policy.load(config, ranks)
        adamw = optimiser.adamw(model, config)
        checkpoints = Checkpoints(config, {"run": "r"}, ranks)
        before = {name: value.full_tensor().clone() for name, value in model.state_dict().items()}
        torch.manual_seed(3)
        checkpoints.save(
            model, adamw, Position(step=1, trained=7, frozen={"proximal": {0: before["model.norm.weight"].numpy()}})
        )
        drawn = torch.rand(1)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        assert not checkpoint(config, 1).exists()
        assert checkpoints.resume(model, adamw) is None
        go_on.set()
        checkpoints.settle()
        found = checkpoints.resume(model, adamw)
        assert found is not None
        assert (found.step, found.trained) == (1, 7)
        assert (found.frozen["proximal"][0] == before["model.norm.weight"].numpy()).all()
        assert torch.rand(1) == drawn
        for name, value in model.state_dict().items():
            torch.testing.assert_close(value.full_tensor(), before[name], rtol=0, atol=0)
        with pytest.raises(TrainingError, match="checkpoints of another run"):
            Checkpoints(config, {"run": "other"}, ranks).resume(model, adamw)
