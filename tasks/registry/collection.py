"""Checkpoints that nothing refers to any more: which they are, and their removal.

Weights stay where the trainer wrote them, so `<home>/runs` grows with every step of every loop. Of each folder there the
survey says what refers to it, or that nothing does. What is removed are weights and resume points; configuration, metrics,
the model card and the version itself stay, and the version is marked, so that it is refused with a clear word.
"""

import json
import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
from pydantic import BaseModel, ConfigDict, Field

from tasks.registry import artifacts
from tasks.registry.versions import REMOVED, Registry, Version

OUTPUT, WORK = "model", "work"  # folders of a training run
LOCKS = Path("/proc/locks")


class Policy(BaseModel):
    """What is kept although no alias names it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    versions: int = Field(10, ge=1)  # the newest of each registered model
    days: float = Field(7, ge=0)  # what was made, or asked for, since


@dataclass(frozen=True)
class Checkpoint:
    """A folder of a training run. `kept`: what refers to it; None where nothing does."""

    run: Path
    versions: list[str]  # "tiny@3": what is registered from it
    kept: str | None
    files: list[Path]  # what a removal takes
    size: int  # bytes of these; their links among MLflow's artifacts are the same files, and go with them


def survey(
    registry: Registry, runs: Path, policy: Policy, *, served: Collection[tuple[str, int]] = ()
) -> list[Checkpoint]:
    """Every folder below `runs` that holds something to remove, with what refers to it. `served`: versions that engines serve."""
    versions, unread = registry.known()
    holders: dict[Path, list[Version]] = {}
    for version in versions:
        holders.setdefault(version.weights_path, []).append(version)
    needed = _needed(versions, policy, served)
    using = list(_using(runs))
    found = []
    for run in sorted(runs.glob("*/")):
        held = holders.get(run / OUTPUT, [])
        files = _removable(run)
        if files:
            reasons = [needed[one.name, one.version] for one in held if (one.name, one.version) in needed]
            kept = _in_use(run, using) or (reasons[0] if reasons else None)
            if run / OUTPUT in unread:
                kept = "a version whose tags were edited"
            if not held and kept is None and _age(run) < timedelta(days=policy.days):
                kept = f"written in the last {policy.days:g} days"
            found.append(
                Checkpoint(
                    run,
                    [f"{one.name}@{one.version}" for one in held],
                    kept,
                    files,
                    sum(one.stat().st_size for one in files),
                )
            )
    return found


def collect(
    registry: Registry, runs: Path, policy: Policy, *, served: Collection[tuple[str, int]] = ()
) -> list[Checkpoint]:
    """Remove what nothing refers to; what was removed. A removal that was cut off is gone on with the next time.

    Registration and promotion by flows wait meanwhile. An alias that a person moves in MLflow's UI is seen until the moment
    before its version's weights go; one that moves later is refused by whoever would serve it.
    """
    gone = []
    with registry.alone():
        for found in survey(registry, runs, policy, served=served):
            if found.kept is None and not _aliased(registry, found):
                _remove(registry, found)
                gone.append(found)
    return gone


def _aliased(registry: Registry, checkpoint: Checkpoint) -> bool:
    named = (version.rpartition("@") for version in checkpoint.versions)
    return any(registry.version(name, int(number)).aliases for name, _, number in named)


def _remove(registry: Registry, checkpoint: Checkpoint) -> None:
    """Mark the versions first: from then on they are refused, whatever happens here."""
    why = f"on {datetime.now(UTC):%Y-%m-%d} by `lakeloop maintain`, for nothing referred to them"
    for version in checkpoint.versions:
        name, _, number = version.rpartition("@")
        registry.tag(name, int(number), REMOVED, why)
        run_id = registry.version(name, int(number)).run_id
        place = registry.client.get_run(run_id).info.artifact_uri
        repository = get_artifact_repository(place, registry.client.tracking_uri)
        for file in registry.client.list_artifacts(run_id, artifacts.WEIGHTS):
            if file.path.endswith(".safetensors"):
                repository.delete_artifacts(file.path)  # type: ignore[no-untyped-call]
    for path in checkpoint.files:
        path.unlink(missing_ok=True)
    shutil.rmtree(checkpoint.run / WORK / "checkpoints", ignore_errors=True)


def _needed(known: list[Version], policy: Policy, served: Collection[tuple[str, int]]) -> dict[tuple[str, int], str]:
    """Why each version that is needed is."""
    needed: dict[tuple[str, int], str] = {}
    since = datetime.now(UTC) - timedelta(days=policy.days)
    by_model: dict[str, list[Version]] = {}
    for version in known:
        by_model.setdefault(version.name, []).append(version)
    for name, versions in by_model.items():
        newest = sorted(versions, key=lambda one: one.version)[-policy.versions :]
        # The last word on a version is the first here.
        needed |= {
            (name, one.version): f"used since {since:%Y-%m-%d %H:%M} UTC" for one in versions if one.used_at >= since
        }
        needed |= {(name, one.version): f"one of the newest {policy.versions}" for one in newest}
        needed |= {
            (name, one.lineage.parent): f"parent of {', '.join(one.aliases)} (version {one.version})"
            for one in versions
            if one.aliases and one.lineage.parent is not None
        }
        needed |= {key: "served" for key in served if key[0] == name}
        needed |= {(name, one.version): f"alias {', '.join(one.aliases)}" for one in versions if one.aliases}
    return needed


def _using(runs: Path) -> Iterator[tuple[Path, set[Path]]]:
    """Each run that trains now, with the folders of weights that it reads. A trainer locks its work folder while it lives."""
    try:
        locked = {line.split()[-3].rpartition(":")[2] for line in LOCKS.read_text().splitlines() if "FLOCK" in line}
    except OSError:
        locked = set()  # then what it reads was asked for lately, or is one of the newest
    for lock in runs.glob(f"*/{WORK}/lock"):
        if str(lock.stat().st_ino) in locked:
            told: dict[str, object] = {}
            with suppress(OSError, ValueError):
                told = json.loads((lock.parent / "config.json").read_text())
            read = {Path(str(told[name])) for name in ("model", "reference", "teacher") if told.get(name)}
            yield lock.parents[1], read


def _in_use(run: Path, using: Iterable[tuple[Path, set[Path]]]) -> str | None:
    for trainer, read in using:
        if run == trainer:
            return "it trains now"
        if any(folder.is_relative_to(run) for folder in read):
            return f"{trainer.name} trains from it"
    return None


def _removable(run: Path) -> list[Path]:
    """Weights and resume points."""
    weights = sorted((run / OUTPUT).rglob("*.safetensors"))
    points = [file for file in (run / WORK / "checkpoints").rglob("*") if file.is_file()]
    return weights + points


def _age(run: Path) -> timedelta:
    """Since the newest file of the run was written."""
    newest = max((file.stat().st_mtime for file in run.rglob("*") if file.is_file()), default=0.0)
    return datetime.now(UTC) - datetime.fromtimestamp(newest, UTC)
