"""Log-probs of sampled tokens under another model: `python -m tasks.training.rescore --config FILE --out FILE`.

The config is a TrainConfig, of which model, rows and temperature count; nothing is trained. The result is a Parquet file with
`row_index` and `logprobs`, one value in nats per sampled token of the row, for every row that has any.
"""

import argparse
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from tasks.training import folder
from tasks.training.config import TrainConfig
from tasks.training.data import loading
from tasks.training.errors import TrainingError
from tasks.training.model import policy
from tasks.training.orphan import end_with_parent
from tasks.training.ranks import joined
from tasks.training.step.passes import look


def rescore(config: TrainConfig, out: Path) -> None:
    """Write the file. RowsRefused where the rows are of another vocabulary or longer than the model's context."""
    folder.check_model(config.model)
    rows = loading.load(config)
    with joined(config) as ranks:
        found = look(policy.load(config, ranks), rows, config, ranks)["logprobs"]
        numbers = {number: int(row.name.rpartition("#")[2]) for number, row in enumerate(rows)}
        if ranks.first:
            table = {
                "row_index": pa.array([numbers[number] for number in sorted(found)], pa.int64()),
                "logprobs": pa.array([found[number] for number in sorted(found)], pa.list_(pa.float32())),
            }
            pq.write_table(pa.table(table), out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("config", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    arguments = parser.parse_args()
    end_with_parent()
    try:
        rescore(TrainConfig.model_validate_json(arguments.config.read_text()), arguments.out)
    except (TrainingError, ValidationError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
