"""Hand a training set to a trainer that knows nothing of the lake: one Parquet file of its rows, in order."""

from pathlib import Path

from lakehouse.query import connect
from lakehouse.records import TrainingSet


def training_set(lake: str | None, training_set_id: str) -> TrainingSet:
    """The pinned selection with this id; LookupError where the lake has none."""
    with connect(lake) as connection:
        found = connection.execute("select * from training_sets where training_set_id = $1", [training_set_id]).pl()
    if found.is_empty():
        raise LookupError(
            f"no training set {training_set_id!r} in this lake: `lakeloop query 'from training_sets'` lists them"
        )
    return TrainingSet(**found.row(0, named=True))


def export_rows(lake: str | None, training_set_id: str, path: Path) -> Path:
    """Write the set's rows to a Parquet file at `path`, ordered by row_index."""
    known = training_set(lake, training_set_id)
    with connect(lake) as connection:
        rows = connection.execute(
            "select * from training_rows where training_set_id = $1 order by row_index", [training_set_id]
        ).pl()
    if rows.height != known.n_rows:
        raise RuntimeError(f"training set {training_set_id} says {known.n_rows} rows and the lake holds {rows.height}")
    path.parent.mkdir(parents=True, exist_ok=True)
    rows.write_parquet(path)
    return path
