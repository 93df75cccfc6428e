"""Rows are checked, in words, before anything expensive starts."""

import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lakehouse.records import TrainingRow
from lakehouse.vocabulary import vocabulary_digest
from tasks.training.config import TrainConfig
from tasks.training.data import loading
from tasks.training.errors import RowsRefused

Configure = Callable[..., TrainConfig]
Export = Callable[..., Path]


def test_rows_come_in_row_order_with_the_tokens_and_logprobs_that_are_trained(
    configure: Configure, sampled: list[TrainingRow], export: Export
) -> None:
    rows = loading.load(configure(rows=export(sampled[::-1])))
    for row, record in zip(rows, sampled, strict=True):
        trained = np.flatnonzero(record.loss_mask)
        assert row.targets.tolist() == np.array(record.input_ids)[trained].tolist()
        np.testing.assert_allclose(row.logprobs, np.array(record.logprobs)[trained], rtol=1e-6)
        assert (row.advantages.tolist(), row.version) == ([record.advantage] * len(trained), 3)
        assert len(row.ids) == trained[-1] + 1  # nothing behind the last trained token


def test_an_arrow_file_gives_the_same_rows(configure: Configure, sampled: list[TrainingRow], tmp_path: Path) -> None:
    table = pa.Table.from_pylist([row.model_dump() for row in sampled])
    with pa.OSFile(str(tmp_path / "rows.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=3)
    one, other = loading.load(configure()), loading.load(configure(rows=tmp_path / "rows.arrow"))
    assert [row.ids.tolist() for row in one] == [row.ids.tolist() for row in other]


def test_a_row_with_an_advantage_per_token_is_trained_with_those(
    configure: Configure, sampled: list[TrainingRow], export: Export
) -> None:
    own = [float(i) / 4 for i in range(len(sampled[0].input_ids))]
    rows = loading.load(configure(rows=export([sampled[0].model_copy(update={"advantages": own}), *sampled[1:]])))
    assert rows[0].advantages.tolist() == np.array(own)[np.flatnonzero(sampled[0].loss_mask)].tolist()
    assert set(rows[1].advantages.tolist()) == {sampled[1].advantage}
    short = sampled[0].model_copy(update={"advantages": own[1:]})
    with pytest.raises(RowsRefused, match="and advantages differ in length"):
        loading.load(configure(rows=export([short, *sampled[1:]])))


def test_the_advantages_reach_the_loss_token_by_token(
    configure: Configure, sampled: list[TrainingRow], export: Export
) -> None:
    import torch

    from tasks.training.data.batch import batch_of

    own = [float(i) for i in range(len(sampled[0].input_ids))]
    rows = loading.load(configure(rows=export([sampled[0].model_copy(update={"advantages": own}), *sampled[1:]])))
    batch = batch_of([0, 1], rows, torch.device("cpu"))
    first, second = (np.count_nonzero(row.loss_mask) for row in sampled[:2])
    assert batch.advantages.tolist() == [*np.flatnonzero(sampled[0].loss_mask), *[sampled[1].advantage] * second]
    assert len(batch.advantages) == first + second


REFUSALS = {
    "loss_mask is 0 everywhere": lambda r: {"loss_mask": [0] * len(r.input_ids)},
    "advantage 0": lambda _: {"advantage": 0.0},
    "advantage is not finite": lambda _: {"advantage": float("nan")},
    "log-prob is not finite": lambda r: {"logprobs": [float("nan")] * len(r.input_ids)},
    "use objective sft": lambda r: {"weight_versions": [-1] * len(r.input_ids)},
    "nothing predicts": lambda r: {"loss_mask": [1] * len(r.input_ids)},
    "differ in length": lambda r: {"logprobs": r.logprobs[1:]},
    "outside the model's vocabulary of 64": lambda r: {"input_ids": [*r.input_ids[:-5], 64, *r.input_ids[-4:]]},
    "mixes the training sets ts-1, ts-2": lambda r: {"training_set_id": f"ts-{1 + r.row_index % 2}"},
    "more than max_seq_len = 64": lambda _: (
        {name: [1] * 65 for name in ("input_ids", "loss_mask", "logprobs", "weight_versions")}
        | {"loss_mask": [0] + [1] * 64}
    ),
}


@pytest.mark.parametrize("words", REFUSALS)
def test_untrainable_rows_are_refused_with_the_reason(
    words: str, configure: Configure, sampled: list[TrainingRow], export: Export
) -> None:
    spoiled = [row.model_copy(update=REFUSALS[words](row)) for row in sampled]
    with pytest.raises(RowsRefused, match=words):
        loading.load(configure(rows=export(spoiled)))


def test_a_few_rows_without_gradient_are_no_reason_to_refuse_and_without_tokens_left_out(
    configure: Configure, sampled: list[TrainingRow], export: Export
) -> None:
    first = sampled[0].model_copy(update={"loss_mask": [0] * len(sampled[0].input_ids)})
    second = sampled[1].model_copy(update={"advantage": 0.0})
    rows = loading.load(configure(rows=export([first, second, *sampled[2:]])))
    assert [row.name for row in rows] == [f"ep-{i}#{i}" for i in range(1, 10)]


def test_no_rows_and_no_file_are_refused(configure: Configure, tmp_path: Path) -> None:
    with pytest.raises(RowsRefused, match="no training rows at"):
        loading.load(configure(rows=tmp_path / "none.parquet"))
    pa.parquet.write_table(pa.table({"row_index": [0]}), tmp_path / "thin.parquet")
    with pytest.raises(RowsRefused, match="lacks the columns"):
        loading.load(configure(rows=tmp_path / "thin.parquet"))


def test_an_empty_training_set_is_refused(configure: Configure, sampled: list[TrainingRow], tmp_path: Path) -> None:
    empty = pa.Table.from_pylist([row.model_dump() for row in sampled])[:0]
    pa.parquet.write_table(empty, tmp_path / "empty.parquet")
    with pa.OSFile(str(tmp_path / "empty.arrow"), "wb") as sink, pa.ipc.new_file(sink, empty.schema):
        pass
    for name in ("empty.parquet", "empty.arrow"):
        with pytest.raises(RowsRefused, match=rf"{name} holds no rows: nothing was selected"):
            loading.load(configure(rows=tmp_path / name))


@pytest.mark.parametrize(
    ("column", "values", "why"),
    [
        ("input_ids", ["text"] * 10, r"input_ids \(string\)"),
        ("input_ids", [["a", "b"]] * 10, r"input_ids \(list<.*string>\)"),
        ("loss_mask", [[0.5, 1.0]] * 10, r"loss_mask \(list<.*double>\)"),
        ("advantage", ["high"] * 10, r"advantage \(string\)"),
    ],
)
def test_a_foreign_file_whose_columns_only_have_the_names_is_refused(
    column: str, values: list[object], why: str, configure: Configure, sampled: list[TrainingRow], tmp_path: Path
) -> None:
    rows = [row.model_dump() | {column: value} for row, value in zip(sampled, values, strict=True)]
    pa.parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "foreign.parquet")
    with pytest.raises(RowsRefused, match=f"columns of other types: {why}: export it"):
        loading.load(configure(rows=tmp_path / "foreign.parquet"))


@pytest.mark.parametrize("column", ["reward", "row_index", "group_id", "problem_kind", "input_ids", "logprobs"])
@pytest.mark.parametrize("inside", [False, True])
def test_nulls_are_refused_by_column(
    column: str, inside: bool, configure: Configure, sampled: list[TrainingRow], tmp_path: Path
) -> None:
    rows = [row.model_dump() for row in sampled]
    values = rows[3][column]
    rows[3][column] = [None, *values[1:]] if inside and isinstance(values, list) else None
    pa.parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "nulls.parquet")
    with pytest.raises(RowsRefused, match=rf"rows without {column} \(null\): export it"):
        loading.load(configure(rows=tmp_path / "nulls.parquet"))


def test_a_row_that_is_there_twice_is_refused(configure: Configure, sampled: list[TrainingRow], export: Export) -> None:
    with pytest.raises(RowsRefused, match=r"2 of 10 rows are there more than once \(row_index 2, 3\)"):
        loading.load(configure(rows=export([*sampled, *sampled[2:4]])))


@pytest.mark.parametrize(
    ("name", "why"), [("rows.csv", "neither .parquet nor .arrow"), ("cut.parquet", "cannot be read as")]
)
def test_a_file_of_another_kind_or_cut_short_is_refused(
    name: str, why: str, configure: Configure, sampled: list[TrainingRow], export: Export, tmp_path: Path
) -> None:
    whole = export(sampled).read_bytes()
    (tmp_path / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RowsRefused, match=why):
        loading.load(configure(rows=tmp_path / name))


@pytest.mark.parametrize(
    ("changed", "why"),
    [({"rows": "gone.parquet"}, "gone.parquet: export the training set"), ({"learning_rte": 1}, "learning_rte")],
)
def test_the_program_says_why_and_never_starts(
    changed: dict[str, object], why: str, configure: Configure, tmp_path: Path
) -> None:
    config = tmp_path / "run.json"
    config.write_text(json.dumps(configure().model_dump(mode="json") | changed))
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "tasks.training", "--config", str(config)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = [line for line in ended.stderr.splitlines() if not line.startswith("import time:")]
    assert ended.returncode == 1
    assert said[0].startswith("training stopped: ")
    assert sum("training stopped" in line for line in said) == 1
    assert why in "\n".join(said)
    assert "Traceback" not in ended.stderr
    assert "| torch\n" not in ended.stderr


def test_a_row_longer_than_the_models_context_is_refused_whatever_max_seq_len_says(
    configure: Configure, sampled: list[TrainingRow], export: Export
) -> None:
    lists = ("input_ids", "loss_mask", "logprobs", "weight_versions")
    long = sampled[0].model_copy(update={name: (getattr(sampled[0], name) * 20)[:129] for name in lists})
    long = long.model_copy(update={"loss_mask": [0, *[1] * 128], "weight_versions": [3] * 129})
    with pytest.raises(RowsRefused, match="more than the 128 tokens of the model's context"):
        loading.load(configure(rows=export([long, *sampled[1:]]), max_seq_len=4096))


def noted(sampled: list[TrainingRow], file: Path, notes: dict[str, object]) -> Path:
    table = pa.Table.from_pylist([row.model_dump() for row in sampled])
    pa.parquet.write_table(table.replace_schema_metadata({loading.EXPORT: json.dumps(notes)}), file)
    return file


def test_an_exported_file_is_refused_when_it_was_changed_or_speaks_of_other_tokens(
    configure: Configure, sampled: list[TrainingRow], tmp_path: Path, model_folder: Path
) -> None:
    file, own = tmp_path / "noted.parquet", vocabulary_digest(model_folder / "tokenizer.json")
    whole = {"training_set_id": "ts-1", "rows": 10, "vocabularies": {"tiny": own}}
    assert len(loading.load(configure(rows=noted(sampled, file, whole)))) == 10
    for change in ({"rows": 11}, {"training_set_id": "ts-2"}):
        with pytest.raises(RowsRefused, match="it was changed since, export it again"):
            loading.load(configure(rows=noted(sampled, file, whole | change)))
    with pytest.raises(RowsRefused, match=r"sampled with the tokenizer of other \(feed.*stand for other texts"):
        loading.load(
            configure(rows=noted(sampled, file, whole | {"vocabularies": {"tiny": own, "other": "feed" * 16}}))
        )


def test_a_vocabulary_is_known_by_what_its_ids_mean_and_not_by_how_its_file_looks(
    model_folder: Path, tmp_path: Path
) -> None:
    told = json.loads((model_folder / "tokenizer.json").read_text())
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(told, indent=7, sort_keys=True))
    assert vocabulary_digest(file) == vocabulary_digest(model_folder / "tokenizer.json")
    told["model"]["vocab"]["5"], told["model"]["vocab"]["6"] = 6, 5
    file.write_text(json.dumps(told))
    assert vocabulary_digest(file) != vocabulary_digest(model_folder / "tokenizer.json")


def many(row: TrainingRow, count: int, folder: Path) -> Path:
    """So many rows of 64 tokens, of which one is trained, in groups of eight."""
    long = {"logprobs": [-1.0] * 64, "weight_versions": [3] * 64, "loss_mask": [*[0] * 63, 1]}
    one = row.model_copy(update=long | {"input_ids": [5] * 64}).model_dump()
    file = folder / "many.parquet"
    with pa.parquet.ParquetWriter(file, pa.Table.from_pylist([one]).schema) as target:
        for start in range(0, count, 500):
            numbers = range(start, min(count, start + 500))
            rows = [one | {"row_index": i, "group_id": f"gr-{i // 8}"} for i in numbers]
            target.write_table(pa.Table.from_pylist(rows))
    return file


def test_a_look_before_the_first_step_holds_no_row_for_long(
    configure: Configure, sampled: list[TrainingRow], tmp_path: Path
) -> None:
    """Of 4,000 rows lengths and numbers are held, and one log-prob each."""
    from tasks.training.honesty import probe
    from tasks.training.model import policy
    from tasks.training.ranks import joined
    from tasks.training.step.before import look_around

    config = configure(rows=many(sampled[0], 4000, tmp_path), micro_batch_tokens=2048)
    rows = loading.load(config)
    with joined(config) as ranks:
        model = policy.load(config, ranks)
        probe.take(model, rows[:8], ranks)  # what is imported and made once
        look_around(model, rows[:300], 2, config, ranks)
        assert peak(lambda: probe.take(model, rows, ranks)) < 1e6
        assert peak(lambda: look_around(model, rows, 2, config, ranks)) < 6e6  # a kilobyte per row; with the rows, 9e6


def test_a_runs_identity_reads_the_rows_piece_by_piece(configure: Configure, tmp_path: Path) -> None:
    from tasks.training.saving.identity import identity

    file = tmp_path / "large.parquet"
    file.write_bytes(bytes(16_000_000))
    assert peak(lambda: identity(configure(rows=file))) < 8e6


def peak(what: Callable[[], object]) -> int:
    """Most bytes that were held at once while it ran, of numpy and Python."""
    tracemalloc.start()
    what()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


def test_rows_are_made_when_they_are_asked_for_and_the_file_is_not_held_in_memory(
    configure: Configure, sampled: list[TrainingRow], tmp_path: Path
) -> None:
    file = many(sampled[0], 4000, tmp_path)
    tracemalloc.start()
    rows = loading.load(configure(rows=file))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(rows) == 4000
    assert held < 1.5e6  # places in the file; the rows as arrays would be over 6 MB
    assert rows[3999].name == "ep-0#3999"
    assert list(tmp_path.glob(".rows-*")) == []
