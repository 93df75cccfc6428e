"""The processes of one run: who am I, on which device, and the few things ranks tell each other."""

import os
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from tasks.training.config import TrainConfig
from tasks.training.errors import RankLost, TrainingError

Result = TypeVar("Result")

ANSWER_S = 10.0  # between two answers of a rank that others wait for


@dataclass(frozen=True)
class Ranks:
    """This process among `world` processes, of which `tensor` neighbours hold one copy of the matrices together.

    Such neighbours read the same rows; so rows are dealt to `shards` shares and not to `world` ranks.
    """

    rank: int
    world: int
    device: torch.device
    tensor: int = 1
    answer_s: float = ANSWER_S

    @property
    def first(self) -> bool:
        return self.rank == 0

    @property
    def shards(self) -> int:
        return self.world // self.tensor

    @property
    def shard(self) -> int:
        """Whose rows this rank computes, from 0."""
        return self.rank // self.tensor

    def sum(self, values: dict[str, float]) -> dict[str, float]:
        """Adds up over shares of rows; every rank passes the same keys."""
        names = sorted(values)
        total = torch.tensor([values[name] for name in names], dtype=torch.float64)
        dist.all_reduce(total)
        return dict(zip(names, (total / self.tensor).tolist(), strict=True))

    def gather(self, value: Any) -> list[Any]:
        """The value of every rank, in rank order, on every rank."""
        values: list[Any] = [None] * self.world
        dist.all_gather_object(values, value)
        return values

    def each(self, action: Callable[[], Result]) -> list[Result]:
        """Runs `action` on every rank; what it gave, in rank order, on every rank. It must not talk to other ranks itself.

        Writing a model takes longer than a rank may be silent. So who is not ready answers that, again and again, and is given
        up only when it does not.
        """
        given: list[Result] = []
        over = threading.Event()
        with ThreadPoolExecutor(1, "answers") as thread:
            everyones = thread.submit(self._answer, given, over)
            try:
                given.append(action())
            finally:
                over.set()
            return everyones.result()

    def _answer(self, given: list[Result], over: threading.Event) -> list[Result]:
        """What all gave, once all are ready; nothing where this rank's action failed, and then the others lose it."""
        while True:
            over.wait(self.answer_s)
            if over.is_set() and not given:
                return []
            answers: list[list[Result]] = self.gather(given)
            if all(answers):
                return [one for (one,) in answers]

    def only_first(self, action: Callable[[], Result]) -> Result | None:
        """Runs `action` on the first rank; a TrainingError there is raised on every rank, so that none waits in vain.

        It may take long, as in `each`.
        """
        result: Result | None = None

        def attempt() -> TrainingError | None:
            nonlocal result
            try:
                result = action() if self.first else None
            except TrainingError as error:
                return error
            return None

        failure = self.each(attempt)[0]
        if failure:
            failure.alike = True
            raise failure
        return result

    def barrier(self) -> None:
        self.gather(None)


@contextmanager
def joined(config: TrainConfig) -> Iterator[Ranks]:
    """Joins the other ranks (torchrun's environment, or alone without it) and leaves them on the way out.

    Raises RankLost where another rank is gone or does not answer for `timeout_s`.
    """
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if world != config.ranks:
        raise TrainingError(
            f"config says ranks={config.ranks}, torchrun started {world}: make --nnodes times --nproc-per-node agree"
        )
    device = _device(config)
    neighbours = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // neighbours))
    torch.manual_seed(config.seed)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    alone = None if "WORLD_SIZE" in os.environ else "tcp://127.0.0.1:0"  # a free port that nobody will call
    wait = timedelta(seconds=config.timeout_s)
    try:
        dist.init_process_group(backend, init_method=alone, timeout=wait, rank=rank, world_size=world)
        yield Ranks(rank, world, device, config.tensor_parallel, min(ANSWER_S, config.timeout_s / 4))
    except RuntimeError as error:
        if not _of_the_network(error):
            raise
        raise RankLost(
            f"rank {rank}: another of the {world} ranks is gone or did not answer for {config.timeout_s:g} s "
            f"({str(error).splitlines()[0]}). Look at what that rank wrote; started again, the run goes on from its "
            "newest checkpoint"
        ) from error
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _of_the_network(error: RuntimeError) -> bool:
    """Gloo reports a lost peer as a plain RuntimeError that only names its source file."""
    return isinstance(error, dist.DistError) or bool(
        re.search(r"gloo|nccl|Connection (reset|closed)", str(error), re.I)
    )


def _device(config: TrainConfig) -> torch.device:
    if config.device == "cuda" and not torch.cuda.is_available():
        raise TrainingError("config says device=cuda, but torch finds no GPU: set device to auto or cpu")
    if config.device == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device
