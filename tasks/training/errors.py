"""The ways a training run ends without a model. Every message names the cause and what to change."""

import os
import sys


class TrainingError(Exception):
    """The run cannot start or must not go on; nothing was registered and the output folder does not exist."""

    alike = False  # whether the first rank is sure to fail for the same reason


class RowsRefused(TrainingError):
    """The training rows cannot be trained on."""


class Disagreement(TrainingError):
    """The trainer's log-probs are too far from the engine's on the same tokens."""

    alike = True


class LedgerGap(TrainingError):
    """Tokens that were trained, skipped and left do not add up to those of the rows, or the rows are not the training set's."""


class NotFinite(TrainingError):
    """A loss or gradient became NaN or infinite."""

    alike = True


class RankLost(TrainingError):
    """Another rank ended or is silent; every rank that is left says so."""


def own_rank() -> int:
    """This process's number among those that torchrun started."""
    return int(os.environ.get("RANK", "0"))


def report(error: Exception) -> None:
    """One line for people on standard error. What the first rank is sure to say, the others do not repeat."""
    rank = own_rank()
    if rank == 0 or isinstance(error, RankLost):
        sys.stderr.write(f"training stopped: {error}\n")
    elif not getattr(error, "alike", False):
        sys.stderr.write(f"training stopped: rank {rank}: {error}\n")
