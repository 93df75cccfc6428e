"""Release: the Prefect tasks that register a version, deploy it with a proof and move the alias."""

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from prefect import task
from prefect.artifacts import create_link_artifact, create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from lakehouse.export import training_set
from lakehouse.governance.erase import refuse_tainted
from lakehouse.home import home
from lakehouse.lineage.terms import learnt_from, terms
from lakehouse.radar import LIMIT, rates
from lakehouse.records import Deployment, ModelVersion, now
from lakehouse.write import Writer
from tasks.acting import actor
from tasks.events import tell
from tasks.limits import place
from tasks.registry import moves
from tasks.registry.versions import CHAMPION, Lineage, Registry, RegistryError
from tasks.retrying import infrastructure
from tasks.serving.deploy import deploy
from tasks.serving.engine import BASE_VERSION, UNKNOWN_VERSION, Engine, Swap
from tasks.serving.errors import EngineError, ServingError
from tasks.serving.gate import Gate
from tasks.serving.proof import Proof
from tasks.serving.rolling import Outcome, roll
from tasks.serving.turns import async_turn, turn
from tasks.showing import show
from tasks.stack.limits import DEPLOYING
from tasks.stack.settings import ROOT, Settings
from tasks.training.folder import other_weights

DEPLOYING_LOCK = "deploying.lock"  # in the home folder


def deploying() -> AbstractContextManager[None]:
    """What a flow holds from before it looks at what is served until that is as it wants it."""
    return turn(home().root / DEPLOYING_LOCK)


def async_deploying() -> AbstractAsyncContextManager[None]:
    """As `deploying`, for a flow that waits within an event loop."""
    return async_turn(home().root / DEPLOYING_LOCK)


class NotDeployed(RuntimeError):
    """The engine does not provably serve the version."""


class NotPromoted(RuntimeError):
    """The version may not be promoted; the message says why."""


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=3, retry_condition_fn=infrastructure)
def register(
    folder: Path, *, stage: str, parent: int | None, training_set_id: str | None, mlflow_run_id: str | None
) -> int:
    """Register weights in MLflow and in the lake, with everything they were made from; the version number."""
    settings = Settings()
    # By what the trainer wrote beside the weights: whoever releases them by hand cannot leave a teacher out.
    others = learnt_from(None, other_weights(folder))
    allowed = terms(None, settings.model_name, parent=parent, training_set_id=training_set_id, others=others)
    lineage = Lineage(
        stage=stage,
        parent=parent,
        learnt_from=others or None,
        licences=allowed.licences,
        allowed_uses=allowed.allowed_uses,
    )
    if training_set_id:
        known = training_set(None, training_set_id)
        lineage = lineage.model_copy(
            update={
                "training_set": training_set_id,
                "rubrics": known.rubrics,
                "lake_versions": known.pinned_versions,
                "commit": commit(),
            }
        )
    registry = Registry(settings.mlflow_url)
    name = settings.model_name
    version = registry.register(name, folder, lineage=lineage, run_id=mlflow_run_id)
    held = registry.version(name, version)
    record = ModelVersion(
        name=name,
        version=version,
        parent_version=parent,
        training_set_id=training_set_id,
        mlflow_run_id=held.run_id,
        weights_path=str(held.weights_path),
        weights_digest=held.weight_digest,
        stage=stage,
        commit=held.lineage.commit or "",
        created_at=now(),
        licences=allowed.licences,
        allowed_uses=allowed.allowed_uses,
        learnt_from=others or None,
    )
    Writer().append("model_versions", [record], transaction=f"model-version/{name}/{version}")
    show(
        create_link_artifact,
        key="model-version",
        link=f"{settings.mlflow_url}/#/models/{name}/versions/{version}",
        link_text=f"{name} version {version} ({stage})",
    )
    return version


@task(cache_policy=NO_CACHE)
def admit(version: int, *, max_hack_rate: float = LIMIT) -> None:
    """Let a version be promoted. NotPromoted, also written down as a deployment, where the radar saw too many hacks."""
    settings = Settings()
    name = settings.model_name
    for found in rates(None, name, version):
        if found.share > max_hack_rate:
            reason = (
                f"{name} version {version} is not promoted: the radar saw reward hacks ({', '.join(found.detectors)}) in "
                f"{found.severe} of {found.episodes} {found.over} episodes, {found.share:.1%}, and {max_hack_rate:.1%} are "
                "allowed. `lakeloop radar --severe` lists them; --max-hack-rate sets the limit"
            )
            _write_down(settings.engine, version, "{}", accepted=False, reason=reason)
            raise NotPromoted(reason)


@task(cache_policy=NO_CACHE)
def serve(version: int, swap: Swap = "keep", engines: Sequence[str] | None = None) -> None:
    """Reload engines to a version, one after another or as many at once as the settings say, and prove it.

    Default: the stack's engine and those that operators added.

    Where the first engine does not come to serve it, that one is put back to what it served and nothing else is touched:
    NotDeployed without a proof, else the ServingError that was in the way. A later one that fails is left out. Before
    anything is reloaded: Tainted where the version was trained on what has been erased, RegistryError where its files are
    gone or changed. Each deployment is written down, whatever comes out.
    """
    settings = Settings()
    name, registry = settings.model_name, Registry(settings.mlflow_url)
    refuse_tainted(None, name, version)
    folder = registry.intact(name, version)
    began_with = _parent(registry, version)
    with place(DEPLOYING), Gate(settings.gateway_url, settings.operator_key) as gate:
        urls = engines or [settings.engine, *(url for url in gate.engines() if url != settings.engine)]
        before = _served(urls[0])

        def one(url: str) -> Proof:
            with Engine(url) as engine:
                return deploy(engine, folder, version, gate, swap=swap, parent=began_with)

        def put_back(url: str) -> None:
            _put_back(url, before, registry, gate)

        def leave_out(url: str) -> None:
            gate.doubted(url)
            with suppress(EngineError), Engine(url) as engine:
                engine.distrust()

        outcomes = roll(urls, one, put_back=put_back, leave_out=leave_out, at_once=settings.roll_at_once)
    _tell(version, outcomes)
    first = outcomes[0]
    if first.error:
        raise first.error
    if not first.served:
        raise NotDeployed(f"{name} version {version} is not proven on {first.url}: {first.reason}")


def _parent(registry: Registry, version: int) -> Path | None:
    """The folder of the weights that a version was trained from, where there are such and the registry knows them."""
    name = Settings().model_name
    parent = registry.version(name, version).lineage.parent
    with suppress(RegistryError):
        return registry.version(name, parent).weights_path if parent is not None else None
    return None


def _served(url: str) -> int:
    try:
        with Engine(url) as engine:
            return engine.served_version()
    except EngineError:
        return UNKNOWN_VERSION


def _put_back(url: str, version: int, registry: Registry, gate: Gate) -> None:
    """What the engine served before, with a proof. Where that cannot be had its weights stay unknown, as its label says."""
    name = Settings().model_name
    now_served = _served(url)
    if now_served == version or version == UNKNOWN_VERSION:
        return  # nothing was touched, or nobody knows what it was
    try:
        with Engine(url) as engine:
            folder = engine.folder() if version == BASE_VERSION else registry.intact(name, version)
            proof = deploy(engine, folder, version, gate)
    except (ServingError, RegistryError) as error:
        _write_down(url, version, "{}", accepted=False, reason=f"could not be put back: {error}")
        return
    _write_down(url, version, proof.model_dump_json(), accepted=proof.passed, reason=f"put back: {proof.reason}")


def _tell(version: int, outcomes: Sequence[Outcome]) -> None:
    """Write down every deployment, and show them in the UI."""
    lines = []
    for number, one in enumerate(outcomes):
        proof = one.proof.model_dump_json() if one.proof else "{}"
        _write_down(one.url, version, proof, accepted=one.served, reason=one.reason)
        state = "serves it" if one.served else "is left out until it is proven" if number else "does not serve it"
        size = f" ({one.proof.tokens} tokens, swapped in {one.proof.swap_s} s)" if one.proof else ""
        lines.append(f"* {one.url} {state}: {one.reason}{size}")
    show(
        create_markdown_artifact,
        key="weight-sync-proof",
        markdown="\n".join([f"**{Settings().model_name} version {version}**", "", *lines]),
    )
    if outcomes[0].served:
        engines = [one.url for one in outcomes if one.served]
        tell("version.served", f"version.{Settings().model_name}.{version}", {"version": version, "engines": engines})


def _write_down(url: str, version: int, proof: str, *, accepted: bool, reason: str) -> None:
    record = Deployment(
        deployment_id=f"dp-{uuid4().hex[:16]}",
        name=Settings().model_name,
        version=version,
        engine_url=url,
        proof=proof,
        accepted=accepted,
        reason=reason,
        deployed_at=now(),
    )
    Writer().append("deployments", [record])


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=3, retry_condition_fn=infrastructure)
def promote(
    version: int,
    alias: str = CHAMPION,
    *,
    why: str = "released",
    evidence: Mapping[str, Any] | None = None,
    expected: moves.Expected = "any",
) -> None:
    """Move an alias to a version; who, why and on what evidence goes to the audit.

    `expected` is where a decision saw the alias point (None: nowhere): moves.Moved where somebody moved it since. That only
    holds within one's turn of `deploying`. Tainted where the version was trained on what has been erased, RegistryError
    where its weights are gone.
    """
    settings = Settings()
    name = settings.model_name
    refuse_tainted(None, name, version)
    registry = Registry(settings.mlflow_url)
    moves.move(registry, name, alias, version, who=actor(), why=why, evidence=evidence, expected=expected)
    tell("alias.moved", f"alias.{name}.{alias}", {"version": version, "who": actor()}, alias=alias)


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=3, retry_condition_fn=infrastructure)
def unmoved(version: int, champion: int | None) -> None:
    """Before a version is served everywhere: moves.Moved where the champion is not the one it was compared with any more."""
    settings = Settings()
    moves.unmoved(Registry(settings.mlflow_url), settings.model_name, CHAMPION, version, champion)


def commit() -> str | None:
    """The commit of this checkout, None outside of one."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()
