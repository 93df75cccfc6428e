"""Which run a checkpoint or a model folder belongs to."""

import hashlib

from lakehouse.records import digest
from tasks.training.config import TrainConfig
from tasks.training.folder import weights_digest

WITHOUT_EFFECT = {
    *("rows", "model", "output", "work", "mlflow", "checkpoint_every", "timeout_s"),
    *("ranks", "tensor_parallel", "context_parallel", "device"),
}


def identity(config: TrainConfig) -> str:
    """Digest of the rows, the input weights and every setting that shapes the result; paths do not count."""
    settings = config.model_dump_json(exclude=WITHOUT_EFFECT)
    with config.rows.open("rb") as file:
        rows = hashlib.file_digest(file, "sha256").digest()
    return digest(settings, rows, weights_digest(config.model))
