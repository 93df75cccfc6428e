"""The trainer's own ledger: what became of every token of the rows, counted where it was trained."""

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.training.config import TrainConfig
from tasks.training.data.mapped import Row
from tasks.training.data.packing import Minibatch
from tasks.training.errors import LedgerGap


@dataclass(frozen=True)
class Ledger:
    """Tokens with loss, over all epochs: `rows * epochs = trained + skipped + not_reached`."""

    rows: int  # in the rows, each once
    epochs: int
    trained: int
    skipped: int  # of steps whose loss or gradient was NaN or infinite
    not_reached: int  # behind max_steps


def closed(
    rows: Sequence[Row], plan: Sequence[Minibatch], config: TrainConfig, *, trained: int, skipped: int
) -> Ledger:
    """The run's ledger at its end, from the tokens of the steps that were taken and of those that were skipped.

    LedgerGap, before anything is exported, where a token went missing or counted twice.
    """
    held = [len(row.positions) for row in rows]
    planned = sum(held[i] for step in plan for i in step)
    ledger = Ledger(
        rows=sum(held),
        epochs=config.epochs,
        trained=trained,
        skipped=skipped,
        not_reached=sum(held) * config.epochs - planned,
    )
    gap = ledger.rows * ledger.epochs - ledger.trained - ledger.skipped - ledger.not_reached
    if gap or ledger.not_reached < 0:
        raise LedgerGap(
            f"the trainer's token ledger has a gap of {gap}: {ledger}. Nothing is exported; report this run"
        )
    return ledger


def agree_on_rows(rows: Sequence[Row], config: TrainConfig) -> None:
    """LedgerGap before the first step where the rows hold another number of trained tokens than the training set says."""
    if config.trained_tokens is None:
        return
    found = sum(len(row.positions) for row in rows)
    if found != config.trained_tokens:
        raise LedgerGap(
            f"{config.rows} holds {found} tokens to train, and by its ledger the training set has {config.trained_tokens}: "
            "export it again"
        )
