"""Model versions in MLflow's registry: what made them, which one is promoted, whether their weights are intact.

Weights stay in the folder where the trainer wrote them; the registry holds the path and a digest, and a version whose
folder no longer matches its digest is refused. A registered version never changes, only aliases and what is said of it do.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from pydantic import BaseModel, ConfigDict, Field

from lakehouse.home import home
from lakehouse.locks import locked
from tasks.registry import artifacts
from tasks.training.folder import weights_digest

CHAMPION = "champion"
EXPERIMENT = "lakeloop"
TAINTED = "tainted"  # tag: the erasure that removed rows which the version was trained on
REMOVED = "weights_removed"  # tag: when, and why
USED = "used_at"  # tag: when somebody last asked for the weights
DESCRIPTION = 5000  # characters that MLflow's tables hold
LOCK_S = 600.0  # for an upload of weights, or a removal, that is under way


class RegistryError(RuntimeError):
    """A version can not be registered, found or used; the message says which and why."""


class Lineage(BaseModel):
    """What made a version."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stage: str  # "base", "sft", "grpo-1", ...
    parent: int | None = None  # the version it was trained from
    learnt_from: list[str] | None = None  # further versions that its training read, as "tiny@3": a teacher, a reference
    training_set: str | None = None
    lake_versions: dict[str, int] = Field(default_factory=dict)  # Delta table -> version read
    rubrics: list[str] = Field(default_factory=list)  # "swe@1"
    commit: str | None = None  # of this repository
    licences: list[str] | None = None  # of all data that trained it or a version it comes from
    allowed_uses: list[str] | None = None  # what all of that data allows


class Version(BaseModel):
    """A registered version."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    version: int
    weights_path: Path
    weight_digest: str
    run_id: str
    aliases: list[str]
    lineage: Lineage
    tainted: str | None = None
    removed: str | None = None
    used_at: datetime  # when it was registered, or somebody last asked for its weights


class Registry:
    """The registry of one MLflow server (or, in tests, of one SQLite file)."""

    def __init__(self, tracking_uri: str) -> None:
        self.client = MlflowClient(tracking_uri, tracking_uri)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While the block runs no flow of this home registers, promotes or removes a version. Never nested."""

        def busy(holder: str) -> RegistryError:
            return RegistryError(f"process {holder} has held the registry for more than {LOCK_S:.0f} s: end it")

        with locked(home().root / "registry.lock", deadline_s=LOCK_S, busy=busy):
            yield

    def register(
        self,
        name: str,
        weights_path: Path,
        *,
        lineage: Lineage,
        run_id: str | None = None,
        extra: Mapping[str, str] | None = None,
    ) -> int:
        """Register the weights in `weights_path` and return the version number.

        `run_id` is the MLflow run that trained them; None makes a run for weights not trained here.
        The same weights from the same run are one version, so a repeated call registers nothing new: not after an update of
        this code either, when a loop goes on that was killed before its newest version was served.
        """
        folder = weights_path.resolve()
        self._ensure_model(name)
        with self.alone():  # or its weights, of no version so far, might be removed meanwhile
            digest = weights_digest(folder) if any(folder.glob("*.safetensors")) else ""
            if not digest:
                raise RegistryError(f"no *.safetensors in {folder}: nothing to register")
            for known in self.versions(name):
                ours = lineage.model_copy(update={"commit": known.lineage.commit})
                same = known.weight_digest == digest and known.lineage == ours and known.removed is None
                if same and run_id in (None, known.run_id):
                    return known.version
            run = run_id or self._own_run(name, lineage.stage)
            manifest = {"weights_path": str(folder), "weight_digest": digest, "lineage": lineage.model_dump()}
            artifacts.publish(self.client, run, folder, manifest, home().artifacts)
            made = self.client.create_model_version(
                name,
                source=f"runs:/{run}/{artifacts.MODEL}",
                run_id=run,
                tags={**_tags(lineage), "weights_path": str(folder), "weight_digest": digest, **(extra or {})},
            )
        return int(made.version)

    def describe(self, name: str, version: int, card: str) -> None:
        """Make `card` the version's README.md and, as far as MLflow has room for it, its description."""
        held = self.version(name, version)
        self.client.log_text(held.run_id, card, artifacts.CARD)
        more = "\n\n(cut off: the whole card is the artifact `model/README.md` of the run)\n"
        shown = card if len(card) <= DESCRIPTION else card[: DESCRIPTION - len(more)] + more
        self.client.update_model_version(name, str(version), shown)

    def promote(self, name: str, version: int, alias: str = CHAMPION) -> None:
        """Move `alias` to `version`. Whoever watches the alias deploys it.

        RegistryError for a version that is tainted or whose weights are gone: the alias stays where it is.
        """
        with self.alone():
            self._usable(name, version)
            self.client.set_registered_model_alias(name, alias, str(version))

    def promoted(self, name: str, alias: str = CHAMPION) -> int | None:
        """The version `alias` points at, or None."""
        try:
            return int(self.client.get_model_version_by_alias(name, alias).version)
        except MlflowException as error:
            if _absent(error):
                return None
            raise

    def version(self, name: str, version: int) -> Version:
        """A version with its lineage; RegistryError when there is none."""
        try:
            found = self.client.get_model_version(name, str(version))
        except MlflowException as error:
            if _absent(error):
                raise RegistryError(f"the registry has no version {version} of {name}") from error
            raise
        # Only the registered model lists aliases reliably on every store.
        return _version(found, self._aliases(name))

    def versions(self, name: str) -> list[Version]:
        """Every version of `name`, the oldest first."""
        found = list(_all(self.client.search_model_versions, f"name = '{name}'"))
        aliases = self._aliases(name) if found else {}
        return sorted((_version(one, aliases) for one in found), key=lambda one: one.version)

    def known(self) -> tuple[list[Version], set[Path]]:
        """Every version of every model, and the folders of those that cannot be read, as where somebody edited their tags.

        Models of others on the same server are left out.
        """
        found, unread = [], set()
        for model in _all(self.client.search_registered_models):
            aliases = {alias: int(number) for alias, number in model.aliases.items()}
            for one in _all(self.client.search_model_versions, f"name = '{model.name}'"):
                try:
                    found.append(_version(one, aliases))
                except RegistryError:
                    if "weights_path" in one.tags:
                        unread.add(Path(one.tags["weights_path"]))
        return found, unread

    def tag(self, name: str, version: int, key: str, value: str) -> None:
        """Add a fact that became known after registration, such as a gate's result."""
        self.client.set_model_version_tag(name, str(version), key, value)

    def taint(self, name: str, version: int, *, why: str) -> list[str]:
        """Tag a version as tainted. Returns the aliases that point at it; one that the registry does not know has none."""
        try:
            found = self.version(name, version)
        except RegistryError:
            return []
        self.tag(name, version, TAINTED, why)
        return found.aliases

    def intact(self, name: str, version: int) -> Path:
        """The folder of a version's weights, checked against the digest it was registered with.

        Whoever asks for it has it for some days: weights that were asked for are not removed.
        """
        with self.alone():
            found = self._usable(name, version)
            self.tag(name, version, USED, datetime.now(UTC).isoformat(timespec="seconds"))
        if weights_digest(found.weights_path) != found.weight_digest:
            raise RegistryError(
                f"the weights of {name} version {version} in {found.weights_path} changed after they were registered; "
                "a version is immutable: register them as a new one"
            )
        return found.weights_path

    def _usable(self, name: str, version: int) -> Version:
        """A version that may be served or trained from; RegistryError says why it may not."""
        found = self.version(name, version)
        if found.tainted is not None:
            raise RegistryError(
                f"{name} version {version} is tainted: erasure {found.tainted} removed rows that it was trained on. It is not "
                "promoted or served again; train a version from one that is not"
            )
        if found.removed is not None:
            made_of = f"from training set {found.lineage.training_set}" if found.lineage.training_set else "anew"
            raise RegistryError(
                f"the weights of {name} version {version} were removed: {found.removed}. Train it {made_of}, or take a version "
                "that is still there: docs/registry.md says which are kept"
            )
        if not any(found.weights_path.glob("*.safetensors")):
            raise RegistryError(f"the weights of {name} version {version} are gone: none in {found.weights_path}")
        return found

    def _ensure_model(self, name: str) -> None:
        if not re.fullmatch(r"[\w.-]+", name):
            raise RegistryError(f"{name!r} is no name for a registered model: use letters, digits, '.', '_' and '-'")
        try:
            self.client.create_registered_model(name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise

    def _aliases(self, name: str) -> dict[str, int]:
        return {alias: int(number) for alias, number in self.client.get_registered_model(name).aliases.items()}

    def _own_run(self, name: str, stage: str) -> str:
        experiment = self.client.get_experiment_by_name(EXPERIMENT)
        experiment_id = experiment.experiment_id if experiment else self.client.create_experiment(EXPERIMENT)
        run_id = str(self.client.create_run(experiment_id, run_name=f"{name}-{stage}").info.run_id)
        self.client.set_terminated(run_id)
        return run_id


def _all(search: Callable[..., Any], asked: str | None = None) -> Iterator[Any]:
    """Everything that a search finds, page by page."""
    token: str | None = None
    while True:
        page = search(asked, max_results=1000, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def _tags(lineage: Lineage) -> dict[str, str]:
    return {
        key: value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        for key, value in lineage.model_dump(exclude_none=True).items()
    }


def _version(found: Any, aliases: Mapping[str, int]) -> Version:
    tags, number = dict(found.tags), int(found.version)
    try:
        lineage = {
            key: tags[key] if key in ("stage", "training_set", "commit") else json.loads(tags[key])
            for key in Lineage.model_fields
            if key in tags
        }
        return Version(
            name=found.name,
            version=number,
            weights_path=Path(tags["weights_path"]),
            weight_digest=tags["weight_digest"],
            run_id=found.run_id or "",
            aliases=sorted(alias for alias, version in aliases.items() if version == number),
            lineage=Lineage.model_validate(lineage),
            tainted=tags.get(TAINTED),
            removed=tags.get(REMOVED),
            used_at=_when(tags.get(USED), found.creation_timestamp),
        )
    except (KeyError, ValueError) as error:
        raise RegistryError(
            f"version {number} of {found.name} was not registered by Lakeloop or its tags were edited: {error}"
        ) from error


def _when(told: str | None, created_ms: int) -> datetime:
    return datetime.fromisoformat(told) if told else datetime.fromtimestamp(created_ms / 1000, UTC)


def _absent(error: MlflowException) -> bool:
    return error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")
