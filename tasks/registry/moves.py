"""Moves of aliases, each with who, why and on what evidence; and versions that an alias may point at but are not served.

MLflow says where an alias points and not who moved it. So every move of ours is written to the audit, as an intent before
and as a move after, and where an alias points elsewhere than the newest entry says, somebody moved it by MLflow's UI or API:
that is written down as it is found. An intent that was carried out and whose move was never written down, for its writer was
killed or the lake was away, is written down then too, with who and why.
"""

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Literal

from mlflow.exceptions import MlflowException

from lakehouse.governance import audit
from lakehouse.home import home
from lakehouse.locks import locked
from lakehouse.query import connect
from tasks.registry.versions import CHAMPION, Registry, RegistryError

CHALLENGER = "challenger"  # the newest version of a running loop, or the one in a canary
MOVED = "move alias"
INTENDED = "will move alias"  # a move, before it is made
DROPPED = "did not move alias"  # one that was intended and is found not to have been made
OTHERS = "mlflow-ui"  # or its API: MLflow does not tell
LOCKED_S = 900.0  # a move may wait for an upload of weights
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
    checked: bool = True,
) -> None:
    """Let the alias point at a version, or at none where that is None; nothing where it does already.

    RegistryError for one that may not be served, unless `checked` is False. Moved where the alias points neither where it is
    expected to nor at the version already. May be called again after a failure: whatever of it was done is noted once.
    """
    with _alone():
        before = _looked(registry, name, alias)[1]
        if before == version:
            return
        if not isinstance(expected, str):
            _same(name, alias, version, expected, before)
        detail = {"from": before, "to": version, "why": why, "evidence": dict(evidence or {})}
        audit.note(None, INTENDED, f"{name}@{alias}", detail, actor=who)
        if version is None:
            registry.client.delete_registered_model_alias(name, alias)
        elif checked:
            registry.promote(name, version, alias)
        else:
            registry.client.set_registered_model_alias(name, alias, str(version))
        audit.note(None, MOVED, f"{name}@{alias}", detail, actor=who)


def unmoved(registry: Registry, name: str, alias: str, version: int | None, expected: int | None) -> None:
    """Moved where the alias points neither where it is expected to nor at `version` already."""
    with _alone():
        _same(name, alias, version, expected, _looked(registry, name, alias)[1])


def note_others(registry: Registry, name: str) -> list[str]:
    """Write down the moves of aliases that nobody of ours made since the last look; each in words."""
    with _alone():
        found = [(alias, *_looked(registry, name, alias)) for alias in _aliases(name)]
    return [f"{alias} of {name}: {known} -> {now}" for alias, known, now in found if known != now]


def made(name: str, why: str) -> list[tuple[str, int | None, int | None]]:
    """The moves of a model's aliases that were made for this reason: alias, from where, to where."""
    with connect(None) as connection:
        rows = connection.execute(
            """
            select object, (detail ->> '$.from')::int, (detail ->> '$.to')::int
            from audit
            where action = $action and starts_with(object, $model) and (detail ->> '$.why') = $why
            order by noted_at
            """,
            {"action": MOVED, "model": f"{name}@", "why": why},
        ).fetchall()
    return [(str(object).partition("@")[2], before, after) for object, before, after in rows]


def _looked(registry: Registry, name: str, alias: str) -> tuple[int | None, int | None]:
    """Where the audit knew that the alias points, and where it does. Moves since then are written down first.

    One that was intended last and is what the alias shows was ours: whoever made it was killed, or could not say so.
    """
    now, entry = registry.promoted(name, alias), _newest(name, alias)
    detail = json.loads(entry["detail"]) if entry else {"to": None}
    known = detail["from"] if entry and entry["action"] != MOVED else detail["to"]
    if entry and entry["action"] == INTENDED:
        made = now == detail["to"]
        audit.note(None, MOVED if made else DROPPED, f"{name}@{alias}", detail, actor=entry["actor"])
        if made:
            return now, now
    if known != now:
        why = "moved in MLflow, by its UI or API: it does not tell by whom"
        audit.note(None, MOVED, f"{name}@{alias}", {"from": known, "to": now, "why": why, "evidence": {}}, actor=OTHERS)
    return known, now


def _same(name: str, alias: str, version: int | None, expected: int | None, now: int | None) -> None:
    if now in (expected, version):
        return
    entry = _newest(name, alias)
    by = f" by {entry['actor']} at {entry['noted_at']:%Y-%m-%d %H:%M:%S}" if entry else ""
    raise Moved(
        f"{alias} of {name} was moved{by} and points at {_words(now)}; the decision to move it to {_words(version)} compared "
        f"that with {_words(expected)}, so nothing is moved. Decide again, against what it points at now"
    )


def _words(version: int | None) -> str:
    return "no version" if version is None else f"version {version}"


def _newest(name: str, alias: str) -> dict[str, Any] | None:
    """The newest entry of the audit about an alias: a move that was made, one that was intended, or one that was not made."""
    with connect(None) as connection:
        found = connection.execute(
            """
            from audit
            where object = $object and action in ($moved, $intended, $dropped)
            order by noted_at desc
            limit 1
            """,
            {"object": f"{name}@{alias}", "moved": MOVED, "intended": INTENDED, "dropped": DROPPED},
        ).pl()
    return found.to_dicts()[0] if len(found) else None


def _aliases(name: str) -> list[str]:
    """The two of ours, and others of a person's that we ever moved."""
    with connect(None) as connection:
        rows = connection.execute(
            "select distinct object from audit where action = $action and starts_with(object, $model)",
            {"action": INTENDED, "model": f"{name}@"},
        ).fetchall()
    return sorted({CHAMPION, CHALLENGER, *(str(row[0]).partition("@")[2] for row in rows)})


def _alone() -> AbstractContextManager[None]:
    """One process at a time moves aliases or looks who did, so that an intent without its move is of one that died."""
    lock = home().root / "moves.lock"

    def busy(holder: str) -> RegistryError:
        return RegistryError(f"process {holder} has been moving an alias for {LOCKED_S:.0f} s and holds {lock}: end it")

    return locked(lock, deadline_s=LOCKED_S, busy=busy)


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
