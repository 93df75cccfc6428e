"""What is different in what made two versions: a table of changes, each with what was before and what is after."""

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from lakehouse.lineage.versions import records
from lakehouse.query import Connection
from lakehouse.records import ModelVersion

SHARE = 0.1  # of episodes: a source that gained or lost less is no change
_SAME_EVERY_TIME = ("data", "engine", "sampling")  # aspects whose amounts are shares, not facts
_LOCAL = {
    "model",
    "rows",
    "output",
    "work",
    "policy_version",
    "mlflow",
    "seed",
    "timeout_s",
}  # of one run, not of a recipe


class Change(BaseModel):
    """One difference between what made version `older` and what made version `newer`; None: it was not there."""

    older: int
    newer: int
    aspect: str  # rubric, filter, setting, selection, engine, sampling, data, recipe, code
    item: str
    before: str | None
    after: str | None


def changes(connection: Connection, older: ModelVersion, newer: ModelVersion) -> list[Change]:
    """Rubrics, filters, their settings, the rest of the selection, engine, sampling, data, trainer and code."""
    before, after = ({**_facts(connection, one), **_recipe(one), **_code(one)} for one in (older, newer))
    return [
        Change(
            older=older.version,
            newer=newer.version,
            aspect=aspect,
            item=item,
            before=before.get((aspect, item)),
            after=after.get((aspect, item)),
        )
        for aspect, item in sorted(before.keys() | after.keys())
        if _differ(aspect, before.get((aspect, item)), after.get((aspect, item)))
    ]


def _facts(connection: Connection, held: ModelVersion) -> dict[tuple[str, str], str]:
    rows = records(
        connection,
        """
        select aspect, item, value, amount, amount / sum(amount) over (partition by aspect) as share
        from provenance
        where name = $1 and version = $2
            and aspect in ('selection', 'setting', 'filter', 'rubric', 'data', 'engine', 'sampling')
            and item not in ('policy_version', 'model_name')
        """,
        [held.name, held.version],
    )
    found: dict[tuple[str, str], str] = {}
    for row in rows:
        item, value = row["item"], row["value"] or "yes"
        if row["aspect"] in _SAME_EVERY_TIME:
            item, value = " ".join(filter(None, (row["item"], row["value"]))), f"{row['share']:.0%}"
        found[row["aspect"], item] = value
    return found


def _differ(aspect: str, before: str | None, after: str | None) -> bool:
    if aspect in _SAME_EVERY_TIME and before and after:
        return abs(float(before.rstrip("%")) - float(after.rstrip("%"))) >= 100 * SHARE
    return before != after


def _code(held: ModelVersion) -> dict[tuple[str, str], str]:
    return {("code", "commit"): held.commit} if held.commit else {}


def _recipe(held: ModelVersion) -> dict[tuple[str, str], str]:
    """The trainer's configuration, which lies beside the weights as long as their run's folder does."""
    file = Path(held.weights_path).parent / "work" / "config.json"
    if not file.is_file():
        return {}
    return {
        ("recipe", name): value
        for name, value in _flat(json.loads(file.read_text()))
        if name.split(".")[0] not in _LOCAL
    }


def _flat(value: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name, one in value.items():
        found += _flat(one, f"{prefix}{name}.") if isinstance(one, dict) else [(prefix + name, json.dumps(one))]
    return found
