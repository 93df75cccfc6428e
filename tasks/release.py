"""Release: the Prefect tasks that register a version, deploy it with a proof and move the alias."""

import subprocess
from contextlib import AbstractContextManager
from pathlib import Path
from uuid import uuid4

from prefect import task
from prefect.artifacts import create_link_artifact, create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from lakehouse.export import training_set
from lakehouse.governance import audit
from lakehouse.governance.erase import refuse_tainted
from lakehouse.home import home
from lakehouse.lineage.terms import terms
from lakehouse.radar import LIMIT, rates
from lakehouse.records import Deployment, ModelVersion, now
from lakehouse.write import Writer
from tasks.acting import actor
from tasks.registry.versions import CHAMPION, Lineage, Registry
from tasks.serving.deploy import deploy
from tasks.serving.engine import Engine
from tasks.serving.errors import ServingError
from tasks.serving.gate import Gate
from tasks.serving.turns import turn
from tasks.stack.settings import ROOT, Settings


def deploying() -> AbstractContextManager[None]:
    """What a flow holds from before it looks at what is served until that is as it wants it."""
    return turn(home().root / "deploying.lock")


class NotDeployed(RuntimeError):
    """The engine does not provably serve the version."""


class NotPromoted(RuntimeError):
    """The version may not be promoted; the message says why."""


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=3)
def register(
    folder: Path, *, stage: str, parent: int | None, training_set_id: str | None, mlflow_run_id: str | None
) -> int:
    """Register weights in MLflow and in the lake, with everything they were made from; the version number."""
    settings = Settings()
    allowed = terms(None, settings.model_name, parent=parent, training_set_id=training_set_id)
    lineage = Lineage(stage=stage, parent=parent, licences=allowed.licences, allowed_uses=allowed.allowed_uses)
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
        commit=lineage.commit or "",
        created_at=now(),
        licences=allowed.licences,
        allowed_uses=allowed.allowed_uses,
    )
    Writer().append("model_versions", [record], transaction=f"model-version/{name}/{version}")
    create_link_artifact(
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
def serve(version: int) -> None:
    """Reload every engine to a version, one after another, and prove it. NotDeployed at the first one without a proof,
    Tainted, before anything is reloaded, where it was trained on what has been erased.

    The engines are the stack's and those that operators added to the gateway. Each deployment is written down, whatever
    comes out.
    """
    settings = Settings()
    refuse_tainted(None, settings.model_name, version)
    registry = Registry(settings.mlflow_url)
    folder = registry.intact(settings.model_name, version)
    with Gate(settings.gateway_url, settings.operator_key) as gate:
        others = [url for url in gate.engines() if url != settings.engine]
        for url in [settings.engine, *others]:
            _serve_on(url, folder, version, gate)


def _serve_on(url: str, folder: Path, version: int, gate: Gate) -> None:
    name = Settings().model_name
    try:
        with Engine(url) as engine:
            proof = deploy(engine, folder, version, gate)
    except ServingError as error:
        _write_down(url, version, "{}", accepted=False, reason=str(error))
        raise
    _write_down(url, version, proof.model_dump_json(), accepted=proof.passed, reason=proof.reason)
    create_markdown_artifact(
        key="weight-sync-proof",
        markdown=f"**{name} version {version}** on {url}: {proof.reason} ({proof.tokens} tokens)",
    )
    if not proof.passed:
        raise NotDeployed(f"{name} version {version} is not proven on {url}: {proof.reason}")


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


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=3)
def promote(version: int) -> None:
    """Move the alias `champion` to a version. Tainted where it was trained on what has been erased."""
    settings = Settings()
    refuse_tainted(None, settings.model_name, version)
    Registry(settings.mlflow_url).promote(settings.model_name, version)
    audit.note(None, "promote", f"{settings.model_name}@{version}", actor=actor())


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=3)
def compare_promoted() -> tuple[int | None, int]:
    """The version the alias `champion` points at, and the version the engine serves."""
    settings = Settings()
    with Engine(settings.engine) as engine:
        return Registry(settings.mlflow_url).promoted(settings.model_name, CHAMPION), engine.served_version()


def commit() -> str | None:
    """The commit of this checkout, None outside of one."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()
