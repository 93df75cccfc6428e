"""Judge: the Prefect tasks that have episodes measured after their boxes are gone, and write what comes of it as evidence."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE

from lakehouse import measuring
from lakehouse.governance.audit import note
from lakehouse.measuring import Reach
from lakehouse.records import Evidence, dumps, now
from lakehouse.trajectory import trajectory
from tasks.acting import actor
from tasks.judges import EndpointJudge, FunctionJudge, Judge, JudgeFailed, JudgeMisconfigured, Prompt
from tasks.progress import Progress
from tasks.retrying import infrastructure
from tasks.serving.engine import Engine
from tasks.stack.settings import Settings


@dataclass(frozen=True)
class Asking:
    """What is asked, of whom, and how. `endpoint` None: the engine of this stack."""

    evidence: str  # the name it will have in the lake
    function: str | None
    endpoint: str | None
    model: str | None
    prompt: str
    structured: bool
    concurrency: int
    deadline_s: float
    attempts: int
    max_tokens: int
    max_chars: int


class CoverageError(RuntimeError):
    """Too many episodes have no score: the judge has probably failed."""


class WeightsChanged(RuntimeError):
    """The engine's weights were swapped while it judged, so nobody can say which weights spoke. Nothing was written."""


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=5, retry_condition_fn=infrastructure)
def find(asking: Asking, where: str) -> tuple[str, list[str]]:
    """The producer, and the episodes that it has said nothing of."""
    producer = judge_of(asking).producer
    return producer, measuring.unmeasured(None, asking.evidence, producer, where=where)


@task(cache_policy=NO_CACHE)
async def ask(shard: Sequence[str], asking: Asking, producer: str, progress: Progress) -> int:
    """Have a shard of episodes judged, `asking.concurrency` at a time; how many got an answer, which is now evidence.

    An episode that got none is told in the log and asked about again by the next run.
    """
    log = get_run_logger()
    places = asyncio.Semaphore(asking.concurrency)

    async def one(judge: Judge, episode_id: str) -> Evidence | None:
        async with places:
            found = await asyncio.to_thread(trajectory, None, episode_id)
            try:
                measured = await judge.ask(found)
            except JudgeFailed as failure:
                log.warning("episode %s was not judged: %s", episode_id, failure)
                measured = None
        await progress.advance()
        if measured is None:
            return None
        own = {"episode_id": episode_id, "attempt_id": found.episode.attempt_id, "name": asking.evidence}
        return Evidence(**own, value=dumps(measured.value), producer=producer, created_at=now())

    judge = await asyncio.to_thread(judge_of, asking)
    if judge.producer != producer:
        raise WeightsChanged(f"this run asks {producer!r}, and now there is {judge.producer!r}: start another run")
    try:
        async with judge, asyncio.TaskGroup() as group:
            asked = [group.create_task(one(judge, episode_id)) for episode_id in shard]
    except ExceptionGroup as several:
        raise several.exceptions[0] from None  # the first: a wrong key is as wrong for the others
    if (await asyncio.to_thread(judge_of, asking)).producer != producer:
        raise WeightsChanged(f"the weights of {producer!r} were swapped while it judged: start another run")
    facts = [fact for fact in (task.result() for task in asked) if fact is not None]
    return await asyncio.to_thread(measuring.record, None, facts)


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=5, retry_condition_fn=infrastructure)
def check(asking: Asking, producer: str, where: str, written: int, max_unscored: float) -> Reach:
    """How far the judge's evidence reaches. CoverageError where too many of the chosen episodes have no score."""
    found = measuring.reach(None, asking.evidence, producer, where=where)
    if written:
        note(None, "judge", asking.evidence, {"producer": producer, "written": written}, actor())
    if found.unscored > max_unscored:
        raise CoverageError(
            f"{producer!r} has no score for {found.unscored:.0%} of the episodes ({max_unscored:.0%} are allowed): {found.scored} "
            f"scored, {found.refused} refused, {found.malformed} malformed, {found.missing} without an answer. The log of the "
            "run says why; what was answered is in the lake. Run it again, or allow it with --max-unscored 1"
        )
    return found


def judge_of(asking: Asking) -> Judge:
    """The judge that is asked for. JudgeMisconfigured where it cannot be."""
    if asking.function is not None:
        if asking.endpoint or asking.model:
            raise JudgeMisconfigured("a judge is a function or a model behind an endpoint: give one of them")
        return FunctionJudge(asking.function, deadline_s=asking.deadline_s)
    settings = Settings()
    if asking.endpoint and not asking.model:
        raise JudgeMisconfigured(f"which model of {asking.endpoint}? Name it with --model")
    version = None
    if not asking.endpoint:
        with Engine(settings.engine) as engine:
            version = engine.served_version()
    return EndpointJudge(
        asking.endpoint or f"{settings.engine}/v1",
        asking.model or settings.model_name,
        Prompt.read(asking.prompt, max_chars=asking.max_chars),
        version=version,
        key=_key(settings) if asking.endpoint else None,
        deadline_s=asking.deadline_s,
        attempts=asking.attempts,
        max_tokens=asking.max_tokens,
        structured=asking.structured,
    )


def _key(settings: Settings) -> str | None:
    """The endpoint's key, `<home>/keys/judge`, where there is one. Never a parameter: those are kept by Prefect."""
    path = settings.home.keys / "judge"
    return path.read_text().strip() or None if path.exists() else None
