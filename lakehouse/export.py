"""Hand a training set to a trainer that knows nothing of the lake: one Parquet file of its rows, in order."""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.privacy import pieces
from lakehouse.query import connect
from lakehouse.records import TrainingSet, dumps
from lakehouse.vocabulary import vocabulary_digest

NOTES = b"lakeloop"  # key of the file's notes, which a trainer checks: set, number of rows, tokenizers
AT_ONCE = 256  # rows in memory at a time


class UnknownTrainingSet(LookupError):
    """The lake holds no training set of this id."""


class RowsErased(LookupError):
    """A training set is not what it was: an erasure or retention took rows of it, or their content."""


class MixedTemperatures(ValueError):
    """A training set's tokens were sampled at several temperatures."""


def training_set(lake: str | None, training_set_id: str) -> TrainingSet:
    """The pinned selection with this id; UnknownTrainingSet where the lake has none."""
    with connect(lake) as connection:
        found = connection.execute("select * from training_sets where training_set_id = $1", [training_set_id]).pl()
    if found.is_empty():
        raise UnknownTrainingSet(
            f"no training set {training_set_id!r} in this lake: `lakeloop query 'from training_sets'` lists them"
        )
    return TrainingSet(**found.row(0, named=True))


def export_rows(lake: str | None, training_set_id: str, path: Path) -> Path:
    """Write the set's rows to a Parquet file at `path`, ordered by row_index, some at a time. RowsErased where they are not
    all there."""
    known = training_set(lake, training_set_id)
    with connect(lake) as connection:
        taken = connection.execute(
            "select erasure_id, reason from erasures where list_contains(training_sets, $1) limit 1", [training_set_id]
        ).fetchone()
        if taken is not None:
            raise RowsErased(
                f"training set {training_set_id} lost rows to {taken[0]} ({taken[1]}): its digest does not hold any more and it "
                "is not trained on again. Select a new one"
            )
        models = connection.execute(
            "select distinct model_name from episodes "
            "semi join (from training_rows where training_set_id = $1) as rows using (episode_id)",
            [training_set_id],
        ).fetchall()
        notes = {
            "training_set_id": training_set_id,
            "rows": known.n_rows,
            "vocabularies": {name: found for (name,) in models if (found := _vocabulary(name)) is not None},
        }
        rows = connection.sql(
            "select * from training_rows where training_set_id = $1 order by row_index", [training_set_id]
        ).to_arrow_reader(AT_ONCE)
        path.parent.mkdir(parents=True, exist_ok=True)
        held = _written(rows, notes, path)
    if held != known.n_rows:
        path.unlink()
        raise RuntimeError(f"training set {training_set_id} says {known.n_rows} rows and the lake holds {held}")
    return path


def _written(rows: pa.RecordBatchReader, notes: dict[str, Any], path: Path) -> int:
    """Streams the rows into a file that appears when it is whole; returns how many there were."""
    draft = path.with_name(f".{path.name}-{os.getpid()}")
    schema = rows.schema.with_metadata({NOTES: dumps(notes).encode()})
    held = 0
    try:
        with pq.ParquetWriter(draft, schema, compression="zstd") as target:
            for batch in rows:
                target.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
                held += batch.num_rows
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return held


def _vocabulary(model_name: str) -> str | None:
    kept = pieces.kept_at(model_name)
    return vocabulary_digest(kept) if kept.is_file() else None


def rollout_temperature(lake: str | None, training_set_id: str) -> float:
    """The one temperature at which the set's tokens were sampled: log-probs are taken after it, so a trainer needs it.

    MixedTemperatures where a set mixes temperatures; 1.0 where nothing was sampled (demonstrations).
    """
    with connect(lake) as connection:
        found = connection.execute(
            """
            select distinct coalesce(json_extract(calls.sampling, '$.temperature')::double, 1.0) as temperature
            from calls
            semi join (from training_rows where training_set_id = $1) as rows using (episode_id)
            where calls.token_route <> 'demonstration'
            """,
            [training_set_id],
        ).fetchall()
    if len(found) > 1:
        several = ", ".join(f"{value:g}" for (value,) in sorted(found))
        raise MixedTemperatures(
            f"training set {training_set_id} mixes rollouts of temperatures {several}: select runs of one"
        )
    return float(found[0][0]) if found else 1.0
