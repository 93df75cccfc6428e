"""Training rows, checked before anything expensive starts. Imports no torch."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lakehouse.records import TrainingRow
from lakehouse.vocabulary import vocabulary_digest
from tasks.training.config import TrainConfig
from tasks.training.data.mapped import Chunk, Row, Rows, mapped
from tasks.training.errors import RowsRefused, TrainingError
from tasks.training.folder import check_model

EXPORT = b"lakeloop"  # key of an exported file's notes: which training set it holds, and of whose tokenizer


def load(config: TrainConfig) -> Rows:
    """The file's rows with tokens to train, in `row_index` order.

    Raises RowsRefused with the reason in words, and TrainingError where a teacher or reference is none for these rows.
    """
    check_others(config)
    needed = [name for name, about in TrainingRow.model_fields.items() if about.is_required()]
    chunks, notes = mapped(config.rows, needed)
    _refuse_foreign(chunks, json.loads(notes[EXPORT]) if EXPORT in notes else {}, config)
    rows = _in_order(chunks)
    trained = rows.only(_checked(rows, config))
    if "pairs" in config.objective.needs:
        _refuse_unpaired(trained, config)
    return trained


def check_others(config: TrainConfig) -> None:
    """TrainingError where a teacher or reference is no model, or its token ids stand for other texts."""
    own = _vocabulary(config.model)
    for what, model in config.other_models.items():
        try:
            check_model(model)
        except TrainingError as error:
            raise TrainingError(f"{what}: {error}") from error
        theirs = _vocabulary(model)
        if own and theirs and own != theirs:
            raise TrainingError(
                f"the {what} {model} has another tokenizer ({theirs[:12]}) than {config.model} ({own[:12]}): its ids stand for "
                "other texts. Name a model with the same one"
            )


def _vocabulary(model: Path) -> str | None:
    """What its ids mean, as a digest; None where it has no `tokenizer.json`."""
    file = model / "tokenizer.json"
    try:
        return vocabulary_digest(file) if file.is_file() else None
    except (ValueError, LookupError, TypeError) as error:
        raise TrainingError(f"{file} cannot be read ({error}): fetch the model anew") from error


def _refuse_unpaired(rows: Rows, config: TrainConfig) -> None:
    sides: dict[str, set[float]] = {}
    for row in rows:
        sides.setdefault(row.group, set()).update(np.sign(row.advantages).tolist())
    if wrong := [group for group, signs in sides.items() if signs != {1.0, -1.0}]:
        raise RowsRefused(
            f"{len(wrong)} of {len(sides)} groups are no pair ({', '.join(wrong[:5])}): {config.objective.name} needs of each "
            "group a best and a worst episode, with the advantages 1 and -1. Select with advantage=pairs"
        )


def _in_order(chunks: Sequence[Chunk]) -> Rows:
    places = [(number, i) for number, chunk in enumerate(chunks) for i in range(len(chunk.indices))]
    indices = np.concatenate([chunk.indices for chunk in chunks])
    numbers, times = np.unique(indices, return_counts=True)
    if twice := numbers[times > 1].tolist():
        raise RowsRefused(
            f"{len(twice)} of {len(numbers)} rows are there more than once (row_index {', '.join(map(str, twice[:5]))}): "
            "export the file from a pinned training set"
        )
    for chunk in chunks:
        if wrong := chunk.indices[chunk.unequal()[:5]].tolist():
            lists = "input_ids, loss_mask, logprobs, weight_versions and advantages"
            raise RowsRefused(f"rows {wrong}: {lists} differ in length")
    return Rows(list(chunks), [places[i] for i in np.argsort(indices, kind="stable")])


def _refuse_foreign(chunks: Sequence[Chunk], exported: dict[str, Any], config: TrainConfig) -> None:
    """One training set, whole, in the token ids of the model that is to be trained."""
    if not chunks:
        raise RowsRefused(f"{config.rows} holds no rows: nothing was selected, look at the selection's reasons")
    sets = set[str]().union(*(chunk.training_sets for chunk in chunks))
    if len(sets) > 1:
        raise RowsRefused(f"{config.rows} mixes the training sets {', '.join(sorted(sets))}: export one at a time")
    count = sum(len(chunk.indices) for chunk in chunks)
    if exported and ({exported["training_set_id"]}, exported["rows"]) != (sets, count):
        raise RowsRefused(
            f"{config.rows} was exported as {exported['training_set_id']} with {exported['rows']} rows and holds {count} of "
            f"{', '.join(sets)}: it was changed since, export it again"
        )
    theirs: dict[str, str] = exported.get("vocabularies", {})
    if theirs and (own := _vocabulary(config.model)):
        others = [f"{name} ({digest[:12]})" for name, digest in sorted(theirs.items()) if digest != own]
        if others:
            raise RowsRefused(
                f"the rows were sampled with the tokenizer of {', '.join(others)}, and {config.model} has another "
                f"({own[:12]}): its ids stand for other texts. Select the episodes of this model"
            )


@dataclass(frozen=True)
class _Rule:
    """What rows may not be: any of them, or with `every` all of them."""

    why: str
    broken: Callable[[Row], bool]
    every: bool = False


def _checked(rows: Rows, config: TrainConfig) -> list[int]:
    """Numbers of the rows that have a token to train; one look at each, whatever the number of rules."""
    rules = list(_rules(config))
    bad: list[list[str]] = [[] for _ in rules]
    trained = []
    for number, row in enumerate(rows):
        if len(row.positions):
            trained.append(number)
        for rule, names in zip(rules, bad, strict=True):
            if rule.broken(row):
                names.append(row.name)
    for rule, names in zip(rules, bad, strict=True):
        if len(names) == len(rows) if rule.every else names:
            some = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            raise RowsRefused(f"{len(names)} of {len(rows)} rows cannot be trained, {rule.why}. Rows: {some}")
    return trained


def _rules(config: TrainConfig) -> Iterator[_Rule]:
    yield _Rule("no token to train: loss_mask is 0 everywhere", lambda row: len(row.positions) == 0, every=True)
    yield _Rule(
        "loss_mask is 1 on the first token, which nothing predicts", lambda row: row.positions[:1].tolist() == [-1]
    )
    yield _Rule(
        f"more than max_seq_len = {config.max_seq_len} tokens: raise it or select with max_tokens_per_row",
        lambda row: len(row.ids) > config.max_seq_len,
    )
    for what, model in {"model": config.model, **config.other_models}.items():
        yield from _fitting(what, *_shape(model))
    if "behaviour" in config.objective.needs:
        yield _Rule("the advantage is not finite", lambda row: not np.isfinite(row.advantages).all())
        yield _Rule("a behaviour log-prob is not finite", lambda row: not np.isfinite(row.logprobs).all())
        yield _Rule(
            "no behaviour log-probs (a demonstration): use objective sft",
            lambda row: len(row.positions) > 0 and row.version < 0,
        )
        zero = "advantage 0, so no gradient: every group has one episode or equal rewards (temperature 0?)"
        yield _Rule(zero, lambda row: not row.advantages.any(), every=True)


def _fitting(what: str, context: int, vocabulary: int) -> Iterator[_Rule]:
    """A row is passed through the model whole."""
    if context:
        yield _Rule(
            f"more than the {context} tokens of the {what}'s context: select with max_tokens_per_row",
            lambda row: len(row.ids) > context,
        )
    if vocabulary:
        yield _Rule(
            f"a token id outside the {what}'s vocabulary of {vocabulary}: the rows are of another model",
            lambda row: bool(len(row.ids)) and not 0 <= int(row.ids.min()) <= int(row.ids.max()) < vocabulary,
        )


def _shape(model: Path) -> tuple[int, int]:
    """Context and vocabulary of the model; 0 where its config does not say."""
    try:
        told = json.loads((model / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return 0, 0
    text = told.get("text_config", told)
    return int(text.get("max_position_embeddings") or 0), int(text.get("vocab_size") or 0)
