"""Training rows in memory: columns as flat numpy arrays, checked before anything expensive starts. Imports no torch."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from lakehouse.records import TrainingRow
from tasks.training.config import TrainConfig
from tasks.training.errors import RowsRefused

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Row:
    """One sequence, cut behind its last trained token (nothing later can reach the loss).

    `positions` are those whose next token is trained, so `ids[positions + 1]` are the trained tokens.
    """

    name: str
    ids: Ints
    positions: Ints
    logprobs: Floats  # behaviour log-probs of the trained tokens, in nats
    advantages: Floats  # of the trained tokens
    version: int  # oldest weight version among the trained tokens; -1 for demonstrations

    @property
    def targets(self) -> Ints:
        return self.ids[self.positions + 1]


def load(config: TrainConfig) -> list[Row]:
    """The file's rows with tokens to train, in `row_index` order; raises RowsRefused with the reason in words."""
    table = _read(config.rows)
    missing = {name for name, about in TrainingRow.model_fields.items() if about.is_required()} - set(
        table.column_names
    )
    if missing:
        raise RowsRefused(f"{config.rows} lacks the columns {sorted(missing)}: export it from a pinned training set")
    table = table.sort_by("row_index")
    _check_lengths(table)
    columns = {name: _lists(table, name) for name in ("input_ids", "loss_mask", "logprobs", "weight_versions")}
    labels = zip(*(table[name].to_pylist() for name in ("episode_id", "row_index")), _advantages(table), strict=True)
    rows = [
        _row(f"{episode}#{index}", advantages, *(columns[name][i] for name in columns))
        for i, (episode, index, advantages) in enumerate(labels)
    ]
    _check(rows, config)
    return [row for row in rows if len(row.positions)]


def _read(file: Path) -> pa.Table:
    if not file.is_file():
        raise RowsRefused(f"no training rows at {file}: export the training set there first")
    if file.suffix == ".parquet":
        return pyarrow.parquet.read_table(file)
    if file.suffix == ".arrow":
        with pa.memory_map(str(file)) as source:
            return pyarrow.ipc.open_file(source).read_all()
    raise RowsRefused(f"{file} is neither .parquet nor .arrow")


def _lists(table: pa.Table, name: str) -> list[npt.NDArray[np.generic]]:
    array = table[name].combine_chunks()
    values, offsets = array.values.to_numpy(zero_copy_only=False), array.offsets.to_numpy()
    return np.split(values[offsets[0] : offsets[-1]], offsets[1:-1] - offsets[0]) if len(array) else []


def _advantages(table: pa.Table) -> list[npt.NDArray[np.generic]]:
    """One value per input id of each row: its `advantages`, or where it has none its `advantage` for all."""
    lengths = np.diff(table["input_ids"].combine_chunks().offsets.to_numpy())
    whole = [np.full(n, value, np.float32) for n, value in zip(lengths, table["advantage"].to_pylist(), strict=True)]
    if "advantages" not in table.column_names or table["advantages"].null_count == len(table):
        return whole
    there, given = table["advantages"].is_valid().to_pylist(), _lists(table, "advantages")
    wrong = [i for i, valid in enumerate(there) if valid and len(given[i]) != lengths[i]]
    if wrong:
        raise RowsRefused(f"rows {wrong[:5]}: advantages and input_ids differ in length")
    return [given[i] if valid else whole[i] for i, valid in enumerate(there)]


def _check_lengths(table: pa.Table) -> None:
    lengths = [np.diff(table[name].combine_chunks().offsets.to_numpy()) for name in ("input_ids", "loss_mask")]
    lengths += [np.diff(table[name].combine_chunks().offsets.to_numpy()) for name in ("logprobs", "weight_versions")]
    wrong = np.flatnonzero(np.any([lengths[0] != other for other in lengths[1:]], axis=0))
    if len(wrong):
        raise RowsRefused(
            f"rows {wrong[:5].tolist()}: input_ids, loss_mask, logprobs, weight_versions differ in length"
        )


def _row(name: str, advantages: npt.NDArray[np.generic], *columns: npt.NDArray[np.generic]) -> Row:
    ids, mask, logprobs, versions = columns
    trained = np.flatnonzero(mask)
    end = int(trained[-1]) + 1 if len(trained) else 0
    return Row(
        name=name,
        ids=ids[:end].astype(np.int64),
        positions=trained - 1,
        logprobs=logprobs[trained].astype(np.float32),
        advantages=advantages[trained].astype(np.float32),
        version=int(versions[trained].min()) if len(trained) else -1,
    )


def _check(rows: list[Row], config: TrainConfig) -> None:
    if not rows:
        raise RowsRefused(f"{config.rows} holds no rows: nothing was selected, look at the selection's reasons")
    _refuse(rows, [len(row.positions) == 0 for row in rows], "no token to train: loss_mask is 0 everywhere", every=True)
    _refuse(
        rows,
        [row.positions[:1].tolist() == [-1] for row in rows],
        "loss_mask is 1 on the first token, which nothing predicts",
    )
    too_long = [len(row.ids) > config.max_seq_len for row in rows]
    _refuse(
        rows,
        too_long,
        f"more than max_seq_len = {config.max_seq_len} tokens: raise it or select with max_tokens_per_row",
    )
    if config.objective == "grpo":
        _refuse(rows, [not np.isfinite(row.advantages).all() for row in rows], "the advantage is not finite")
        _refuse(rows, [not np.isfinite(row.logprobs).all() for row in rows], "a behaviour log-prob is not finite")
        _refuse(
            rows,
            [len(row.positions) > 0 and row.version < 0 for row in rows],
            "no behaviour log-probs (a demonstration): use objective sft",
        )
        zero = "advantage 0, so no gradient: every group has one episode or equal rewards (temperature 0?)"
        _refuse(rows, [not row.advantages.any() for row in rows], zero, every=True)


def _refuse(rows: list[Row], bad: list[bool], why: str, *, every: bool = False) -> None:
    """Raise when any row is bad, or with `every` only when all are."""
    if (all if every else any)(bad):
        names = [row.name for row, is_bad in zip(rows, bad, strict=True) if is_bad]
        some = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        raise RowsRefused(f"{len(names)} of {len(rows)} rows cannot be trained, {why}. Rows: {some}")
