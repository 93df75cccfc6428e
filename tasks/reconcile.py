"""Reconcile: the Prefect tasks that find what should be served where, and that say why a promoted version is not."""

from dataclasses import dataclass, field

from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from lakehouse.governance.erase import Tainted
from lakehouse.home import home
from lakehouse.locks import held
from lakehouse.looping import overruled
from lakehouse.query import connect
from tasks.acting import actor
from tasks.registry import moves
from tasks.registry.versions import CHAMPION, Registry, RegistryError
from tasks.registry.watch import LOOP, Watch
from tasks.retrying import infrastructure
from tasks.serving.canary import LOCK
from tasks.serving.engine import Engine
from tasks.serving.errors import ModelError, ProbeError, Unchanged
from tasks.serving.gate import Gate
from tasks.showing import show
from tasks.stack.settings import Settings

# What says no to a version, and not that an engine is in trouble.
VERDICTS = (RegistryError, Tainted, ModelError, ProbeError, Unchanged)


@dataclass(frozen=True)
class Due:
    """What should be served, and which engines serve something else; the stack's own is the first of them, if it does."""

    version: int | None  # None: nothing is promoted
    served: int  # by the stack's engine
    engines: list[str] = field(default_factory=list)
    split: bool = False  # the gateway parts sessions, and no canary is at work
    alias: str = CHAMPION

    @property
    def own(self) -> bool:
        """Whether the stack's engine is among them: what goes wrong on another one says nothing of the version."""
        return Settings().engine in self.engines


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=3, retry_condition_fn=infrastructure)
def look() -> Due:
    """What is promoted against what is served. Moves of aliases that somebody else made are written to the audit."""
    settings = Settings()
    registry, name = Registry(settings.mlflow_url), settings.model_name
    for told in moves.note_others(registry, name):
        print(f"moved in MLflow: {told}")
    with Engine(settings.engine) as engine:
        served = engine.served_version()
    champion, challenger = registry.promoted(name), registry.promoted(name, moves.CHALLENGER)
    if champion is None:
        return Due(None, served)
    loop = Watch(settings.mlflow_url, settings.engine, settings.prefect_url, name).alive(LOOP)
    canary = held(home().root / LOCK)  # of one that was killed Prefect says for minutes that it runs
    with Gate(settings.gateway_url, settings.operator_key) as gate:
        fleet, split = gate.states(), gate.split()
    # A loop's newest version is newer than what was promoted; an older challenger is left over from another one. Where somebody
    # moved the champion since, that is what counts, as the loop itself finds before its next step.
    ahead = loop and challenger is not None and challenger > champion and not overruled(None, name, challenger)
    due, alias = (challenger, moves.CHALLENGER) if ahead else (champion, CHAMPION)
    accepted = {str(due), str(champion)} | ({str(challenger)} if canary else set())
    # The label of one that the gateway doubts says nothing: it is left out until a version is proven there.
    doubted = {url for url, one in fleet.items() if one.state == "stale"}
    others = [
        url for url, one in fleet.items() if url != settings.engine and (one.version not in accepted or url in doubted)
    ]
    own = [] if str(served) in accepted and settings.engine not in doubted else [settings.engine]
    return Due(due, served, own + others, split is not None and not canary, alias)


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=3, retry_condition_fn=infrastructure)
def end_split() -> None:
    """New sessions go to any engine again."""
    settings = Settings()
    with Gate(settings.gateway_url, settings.operator_key) as gate:
        gate.unsplit()


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=3, retry_condition_fn=infrastructure)
def refuse(version: int, alias: str, reason: str) -> int | None:
    """Say in MLflow, in Prefect and in the audit why a version is not served although an alias points at it.

    Returns the version to serve in its place where the engine serves none that anybody knows: the last one that was proven.
    """
    settings = Settings()
    registry, name = Registry(settings.mlflow_url), settings.model_name
    try:
        moves.refuse(registry, name, version, reason, who=actor())
    except RegistryError as error:
        print(f"not said at the version: {error}")
    with Engine(settings.engine) as engine:
        served = engine.served_version()
    goes_on = f"version {served} goes on" if served >= 1 else "what the engine serves is not known"
    show(
        create_markdown_artifact,
        key="refused",
        markdown=f"# {name} version {version} is not served\n\nThe alias `{alias}` points at it, and {goes_on}.\n\n{reason}\n\n"
        f"It is not tried again by itself. Move the alias to another version, or remove the cause and run "
        "`lakeloop reconcile`.",
    )
    return None if served >= 1 else proven_before(name, settings.engine, without=version)


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=3, retry_condition_fn=infrastructure)
def forgive(version: int) -> None:
    """A version is served that may have been refused earlier."""
    settings = Settings()
    moves.forgive(Registry(settings.mlflow_url), settings.model_name, version)


def proven_before(name: str, url: str, *, without: int) -> int | None:
    """The registered version that an engine provably served last, apart from one; None where there is none."""
    with connect(None) as connection:
        found = connection.execute(
            """
            select arg_max(version, deployed_at)
            from deployments
            where name = $name and engine_url = $url and accepted and version >= 1 and version <> $without
            """,
            {"name": name, "url": url, "without": without},
        ).fetchone()
    return None if found is None or found[0] is None else int(found[0])
