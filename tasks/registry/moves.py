"""Moves of aliases, each with who, why and on what evidence; and versions that an alias may point at but are not served.

MLflow says where an alias points and not who moved it. So every move of ours is written to the audit, and where an alias
points elsewhere than the newest entry says, somebody moved it by MLflow's UI or API: that is written down as it is found.
"""

from collections.abc import Mapping
from typing import Any, Literal

import polars as pl
from mlflow.exceptions import MlflowException

from lakehouse.governance import audit
from tasks.registry.versions import CHAMPION, Registry

CHALLENGER = "challenger"  # the newest version of a running loop, or the one in a canary
MOVED = "move alias"
OTHERS = "mlflow-ui"  # or its API: MLflow does not tell
REFUSED = "refused"  # tag of a version that was to be served and was not: why

Expected = int | None | Literal["any"]  # where an alias must point for a move to be right; None: nowhere


class Moved(RuntimeError):
    """The alias points elsewhere than the decision to move it rests on; the message says who moved it."""


def move(
    registry: Registry,
    name: str,
    alias: str,
    version: int | None,
    *,
    who: str,
    why: str,
    evidence: Mapping[str, Any] | None = None,
    expected: Expected = "any",
) -> None:
    """Let the alias point at a version, or at none where that is None.

    RegistryError for one that may not be served, Moved where the alias points neither where it is expected to nor at the
    version already.
    """
    note_others(registry, name)
    before = registry.promoted(name, alias)
    if not isinstance(expected, str):
        unmoved(registry, name, alias, version, expected)
    if version is None:
        if before is not None:
            registry.client.delete_registered_model_alias(name, alias)
    else:
        registry.promote(name, version, alias)
    note(name, alias, before, version, who=who, why=why, evidence=evidence)


def unmoved(registry: Registry, name: str, alias: str, version: int | None, expected: int | None) -> None:
    """Moved where the alias points neither where it is expected to nor at `version` already."""
    note_others(registry, name)
    now = registry.promoted(name, alias)
    if now in (expected, version):
        return
    found = audit.entries(action=MOVED, object=f"{name}@{alias}", limit=1).to_dicts()
    by = f" by {found[0]['actor']} at {found[0]['noted_at']:%Y-%m-%d %H:%M:%S}" if found else ""
    raise Moved(
        f"{alias} of {name} was moved{by} and points at {_words(now)}; the decision to move it to {_words(version)} compared "
        f"that with {_words(expected)}, so nothing is moved. Decide again, against what it points at now"
    )


def _words(version: int | None) -> str:
    return "no version" if version is None else f"version {version}"


def note_others(registry: Registry, name: str) -> list[str]:
    """Write down the moves of aliases that nobody of ours made since the last look; each in words."""
    found = []
    for alias in (CHAMPION, CHALLENGER):
        now, known = registry.promoted(name, alias), last(name, alias)
        if now is None and known is None:
            continue
        if known is None or known != now:
            note(name, alias, known, now, who=OTHERS, why="moved in MLflow, by its UI or API: it does not tell by whom")
            found.append(f"{alias} of {name}: {known} -> {now}")
    return found


def last(name: str, alias: str) -> int | None:
    """Where the newest entry of the audit says that the alias points; None where there is no entry, or none since it went."""
    entries = audit.entries(action=MOVED, object=f"{name}@{alias}", limit=1)
    if entries.is_empty():
        return None
    to = entries.select(pl.col("detail").str.json_path_match("$.to")).item()
    return None if to is None else int(to)


def refuse(registry: Registry, name: str, version: int, reason: str, *, who: str) -> None:
    """Say at the version why it is not served although an alias points at it; the watcher does not try it again."""
    registry.tag(name, version, REFUSED, reason[:4900])
    audit.note(None, "refuse version", f"{name}@{version}", {"reason": reason}, actor=who)


def forgive(registry: Registry, name: str, version: int) -> None:
    """It is served now."""
    try:
        registry.client.delete_model_version_tag(name, str(version), REFUSED)
    except MlflowException:  # it was never refused
        return


def note(
    name: str,
    alias: str,
    before: int | None,
    after: int | None,
    *,
    who: str,
    why: str,
    evidence: Mapping[str, Any] | None = None,
) -> None:
    """Write a move down that was made."""
    detail = {"from": before, "to": after, "why": why, "evidence": dict(evidence or {})}
    audit.note(None, MOVED, f"{name}@{alias}", detail, actor=who)
