"""Erase: the Prefect tasks that remove a subject's or an episode's data from the lake and from everything beside it.

What they are about is in the plan's file and never in a parameter, a log line or an artifact: Prefect keeps those.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from lakehouse.governance import erase, postgres, scan, sweep
from lakehouse.governance.plan import Plan, load
from lakehouse.home import home
from lakehouse.query import connect
from lakehouse.records import Erasure
from sandboxes.backends.trees import TreeStore
from sandboxes.external import episode_of
from sandboxes.gateway.sessions.erasing import erase_sessions, sessions
from tasks.acting import actor
from tasks.registry import moves
from tasks.registry.versions import Registry
from tasks.retrying import infrastructure
from tasks.showing import show
from tasks.stack.settings import Settings

PASSES = 3  # of scan and sweep: a server may write while the first one looks


@dataclass(frozen=True)
class Version:
    """A tainted version and the nearest version before it that is not."""

    name: str
    number: int
    instead: int | None


@task(cache_policy=NO_CACHE)
def remove_rows(erasure_id: str) -> None:
    """Remove the rows from every table, with every file of older versions that holds them."""
    plan = load(erasure_id)
    plan.episode_ids = sorted({*plan.episode_ids, *recorded(plan)})  # what is not there yet lands no more
    erase.begin(plan)
    erase.remove(plan, told=lambda table, rows: print(f"{table}: {rows} rows removed") if rows else None)


@task(cache_policy=NO_CACHE, retries=3, retry_delay_seconds=10, retry_condition_fn=infrastructure)
def remove_sessions(erasure_id: str) -> int:
    """Remove the sessions from the gateway's journal, with their keys; how many."""
    where = home()
    gone = erase_sessions(where.gateway / "journal.db", where.keys / "sessions", _mine(load(erasure_id)))
    print(f"the gateway's journal: {gone} sessions removed")
    return gone


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=5, retry_condition_fn=infrastructure)
def remove_trees(erasure_id: str) -> int:
    """Remove the work trees that only these episodes recorded; how many."""
    gone = TreeStore().prune(drop=load(erasure_id).trees, unused_s=math.inf)
    print(f"work trees: {gone.trees} removed")
    return gone.trees


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=5, retry_condition_fn=infrastructure)
def demote(erasure_id: str) -> list[str]:
    """Mark the tainted versions in the registry; an alias of one moves to the nearest version before it that is not."""
    plan = load(erasure_id)
    if not plan.tainted:
        return []
    registry, told, why = Registry(Settings().mlflow_url), [], f"tainted by erasure {erasure_id}"
    for version in _tainted(plan):
        for alias in registry.taint(version.name, version.number, why=erasure_id):
            with suppress(moves.Moved):  # away from it meanwhile, by somebody
                moves.move(
                    registry,
                    version.name,
                    alias,
                    version.instead,
                    who=actor(),
                    why=why,
                    expected=version.number,
                    checked=False,  # one whose weights are gone is refused where it would be served
                )
    for name in sorted({version.name for version in _tainted(plan)}):
        moves.note_others(registry, name)  # an earlier try may have moved one and not come to say so
        for alias, before, after in moves.made(name, why):
            to = f"moves to version {after}" if after is not None else "ends: no version is clean"
            told.append(f"{alias} of {name} version {before} {to}")
    print("\n".join([f"tainted: {', '.join(plan.tainted)}", *told]))
    return told


@task(cache_policy=NO_CACHE)
def prove(erasure_id: str, demoted: list[str]) -> Erasure:
    """Scan the home folder and the lake, remove what copies are left, and sign. LeftOver where something stays."""
    row, notes = proved(load(erasure_id), demoted)
    show(
        create_markdown_artifact, key="erasure", markdown=erase.report(row, notes), description=f"Erasure {erasure_id}"
    )
    return row


def proved(plan: Plan, demoted: list[str]) -> tuple[Erasure, dict[str, object]]:
    """The signed row, and what the report says besides."""
    assert plan.probes is not None
    search, swept, databases = scan.Search(plan.probes), sweep.Swept(), _databases()
    scanned = _look(plan, search, databases)
    for _ in range(PASSES):
        done = sweep.sweep(scanned, search)
        done.blanked += [place for database in databases for place in database.blank(search, scanned)]
        if not done:
            break
        swept.removed += done.removed
        swept.blanked += [name for name in done.blanked if name not in swept.blanked]
        scanned = _look(plan, search, databases)
    notes: dict[str, object] = {
        "copies removed": swept.removed,
        "blanked in": swept.blanked,
        "aliases": demoted,
        **_outside(),
    }
    return erase.finish(plan, scanned, actor=actor(), notes=notes), notes


def _look(plan: Plan, search: scan.Search, databases: Sequence[postgres.Database]) -> scan.Scanned:
    scanned = erase.look(plan)
    for database in databases:
        database.look(search, scanned)
    return scanned


def _mine(plan: Plan) -> Callable[[str, str, str, str | None], bool]:
    """Whether a session is the subject's, or one of the plan's episodes. The same session id may come again with a new journal."""
    episodes = set(plan.episode_ids)

    def mine(session_id: str, task_id: str, started_at: str, subject: str | None) -> bool:
        if subject is not None and subject == plan.subject:
            return True
        return task_id in episodes or episode_of({"session_id": session_id, "started_at": started_at}) in episodes

    return mine


def recorded(plan: Plan) -> list[str]:
    """The episodes of the sessions in the gateway's journal that are the subject's, or one of the plan's, landed or not."""
    found = sessions(home().gateway / "journal.db", _mine(plan))
    episodes = set(plan.episode_ids)
    return [
        one.task_id
        if one.task_id in episodes
        else episode_of({"session_id": one.session_id, "started_at": one.started_at})
        for one in found
    ]


def _tainted(plan: Plan) -> list[Version]:
    with connect(plan.lake) as lake:
        rows = lake.execute("select name, version, parent_version from model_versions").fetchall()
    parents = {(name, version): parent for name, version, parent in rows}
    tainted = {(name, int(version)) for name, _, version in (one.rpartition("@") for one in plan.tainted)}
    found = []
    for name, number in sorted(tainted):
        instead = parents.get((name, number))
        while instead is not None and (name, instead) in tainted:
            instead = parents.get((name, instead))
        found.append(Version(name, number, instead))
    return found


def _databases() -> list[postgres.Database]:
    """The servers' databases that are no files of the home folder and that can be searched."""
    return [postgres.Database(owner, url) for owner, url in _elsewhere().items() if postgres.is_postgres(url)]


def _outside() -> dict[str, str]:
    """What is not searched."""
    others = {owner: url for owner, url in _elsewhere().items() if not postgres.is_postgres(url)}
    return {f"not searched: {owner}'s database": url.split("://")[0] for owner, url in others.items()}


def _elsewhere() -> dict[str, str]:
    """URLs of the servers' databases where they are not SQLite files."""
    settings = Settings()
    named = {"Prefect": settings.prefect_database, "MLflow": settings.mlflow_database}
    return {owner: url for owner, url in named.items() if url and not url.startswith("sqlite")}
