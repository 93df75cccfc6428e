"""What the gate found, told to MLflow: metrics on the version's run, tags on the version."""

import math
import time
from collections.abc import Mapping

from mlflow.entities import Metric

from tasks.registry.versions import Registry


def tell(registry: Registry, name: str, version: int, metrics: Mapping[str, float], tags: Mapping[str, str]) -> None:
    """Log metrics to the run that made the version, and tag the version. A repetition replaces the tags."""
    run_id = registry.version(name, version).run_id
    at = int(time.time() * 1000)
    finite = [Metric(key, value, at, 0) for key, value in metrics.items() if math.isfinite(value)]
    if run_id and finite:
        registry.client.log_batch(run_id, metrics=finite)
    for key, value in tags.items():
        registry.tag(name, version, key, value)


def training_agreement(registry: Registry, name: str, version: int) -> dict[str, float]:
    """How far trainer and engine were apart when the version was trained, as its run measured it; empty where it did not."""
    run_id = registry.version(name, version).run_id
    held = registry.client.get_run(run_id).data.metrics if run_id else {}
    known = {"agreement": "agreement/mean", "agreement_p99": "agreement/p99"}
    return {metric: float(held[key]) for metric, key in known.items() if key in held}
