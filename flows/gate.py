"""Gate: whether a version may take the champion's place."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prefect import flow

from flows.evaluate import sit
from lakehouse.evaluation.decide import Decision
from lakehouse.evaluation.exam import Exam
from lakehouse.evaluation.policy import Policy, read
from sandboxes.prompts import read as read_prompts
from tasks.canary import alone, stop_splitting
from tasks.describe import describe
from tasks.gate import Grounds, decided, keep_sessions, sat, served, sides, spare, tell
from tasks.offpolicy import estimated
from tasks.release import async_deploying, serve
from tasks.rollout import load_problems


@flow(name="gate", flow_run_name="gate-{candidate}", log_prints=True)
async def gate(
    candidate: int, champion: int | None = None, policy: str = "default", exam: Exam | None = None
) -> Decision:
    """Compare a version with the champion on the same held-out problems and seeds, and decide by a policy.

    What is in the lake is not played again. For the rest the engine is given the version, and then back what it served
    before. The decision is a row of `gates`, metrics and tags in MLflow, and a page; no alias is moved.

    Args:
        candidate: The version that may be promoted.
        champion: The version to compare with. Default: the promoted one; where there is none, nothing is compared.
        policy: A policy that is shipped (default, strict), or a TOML file: docs/gate.md.
        exam: What is played, such as {"problems": {"search": 40}, "samples": 2}. Default: what the policy says.
    """
    asked = read(policy)
    asked = asked if exam is None else asked.model_copy(update={"exam": exam})
    read_prompts(asked.exam.prompts)  # before an engine is swapped for it
    rival = sides(candidate, champion)
    await load_problems(list(asked.exam.problems))
    against = None if rival is None else await played(rival, asked.exam)
    estimate = None
    if asked.offpolicy is not None and against is not None:
        found = await estimated(
            candidate,
            [against],
            min_effective_samples=asked.offpolicy.min_effective_samples,
            confidence=asked.confidence,
        )
        estimate = found.values
        early = await _decide(asked, candidate, rival, Grounds(None, against, estimate, only_estimate=True))
        if not early.passed:
            return early
    run = await played(candidate, asked.exam)
    return await _decide(asked, candidate, rival, Grounds(run, against, estimate))


async def played(version: int, exam: Exam) -> str:
    """The run of a version's exam, sat now where it was not: then an engine serves the version meanwhile."""
    found = await asyncio.to_thread(sat, version, exam)
    if found.complete:
        print(f"version {version} has sat this exam: run {found.run_id}, {found.episodes} episodes")
        return found.run_id
    async with _serving(version):
        return (await sit(exam, "gate", version, pinned=True)).run_id


@asynccontextmanager
async def _serving(version: int) -> AsyncIterator[None]:
    """An engine serves the version, with proof; afterwards what it served before. Nobody else deploys meanwhile.

    Where there is one to spare beside the stack's own, only that one does, and no session but the exam's meets the version:
    what was never examined answers no production. Else all engines do. CanaryRunning while a canary is at work: it parts the
    sessions too, and could not be rolled back before the exam is over.
    """
    async with async_deploying():
        with alone():
            before = await asyncio.to_thread(served)
            if before == version:
                yield
                return
            engine = await asyncio.to_thread(spare, before) if before >= 1 else None
            act = _everywhere(version, before) if engine is None else _on(engine, version, before)
            async with act:
                yield


@asynccontextmanager
async def _everywhere(version: int, before: int) -> AsyncIterator[None]:
    try:
        await asyncio.to_thread(serve, version)
        yield
    finally:
        if before >= 1:  # else nobody knows what it was
            await asyncio.to_thread(serve, before)


@asynccontextmanager
async def _on(engine: str, version: int, before: int) -> AsyncIterator[None]:
    print(f"the exam of version {version} is sat on {engine}; version {before} answers all other sessions")
    await asyncio.to_thread(keep_sessions, before, version)
    try:
        await asyncio.to_thread(serve, version, swap="wait", engines=[engine])
        yield
    finally:
        await asyncio.to_thread(serve, before, engines=[engine])  # where that fails, sessions stay away from it
        await asyncio.to_thread(stop_splitting)


async def _decide(policy: Policy, candidate: int, champion: int | None, grounds: Grounds) -> Decision:
    decision = await asyncio.to_thread(decided, policy, candidate, champion, grounds)
    if grounds.only_estimate and decision.passed:
        return decision
    await asyncio.to_thread(tell, decision)
    await asyncio.to_thread(describe, candidate, return_state=True)
    print(f"{decision.name} version {candidate} {'passes' if decision.passed else 'is refused'}")
    for reason in decision.reasons:
        print(reason)
    return decision
