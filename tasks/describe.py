"""Describe: the Prefect task that writes a version's model card."""

from collections.abc import Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE

from lakehouse.lineage.cards import facts
from tasks.registry.card import card
from tasks.registry.versions import Registry
from tasks.retrying import infrastructure
from tasks.stack.settings import Settings
from tasks.training.diagnosis import diagnose, history


@task(
    cache_policy=NO_CACHE,
    retries=2,
    retry_delay_seconds=3,
    retry_condition_fn=infrastructure,
    task_run_name="describe version {version}",
)
def describe(version: int) -> None:
    """Write the model card of a version of the served model, as it is known now, to its artifacts and its description.

    Call it with `return_state=True`: a card is for people, and no release ends for want of one.
    """
    settings = Settings()
    found = facts(None, settings.model_name, version)
    registry = Registry(settings.mlflow_url)
    folder = registry.version(settings.model_name, version).weights_path
    entries = history(folder.parent / "work" / "metrics.jsonl")
    told = card(
        found, entries=entries, diagnosis=[str(one) for one in diagnose(entries)], mlflow_url=settings.mlflow_url
    )
    registry.describe(settings.model_name, version, told)


def versions_of(names: Sequence[str]) -> list[int]:
    """The numbers of those that are versions of the served model: of "tiny@3" 3."""
    parted = [name.rpartition("@") for name in names]
    return sorted(int(number) for name, _, number in parted if name == Settings().model_name)
