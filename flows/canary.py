"""Canary: a share of the production sessions goes to a new version until it is told apart from the champion."""

import asyncio
from contextlib import suppress
from typing import Annotated, Literal

from prefect import flow
from pydantic import BaseModel, Field

from flows.ingest import ingest
from flows.label import label
from lakehouse.evaluation.sequential import Comparison, compare
from lakehouse.records import now
from tasks.canary import Live, Setting, alone, evidence, patiently, report, stays, stop_splitting, survey, withdraw
from tasks.label import CoverageError, current_rubrics
from tasks.registry.moves import CHALLENGER
from tasks.release import deploying, promote, serve, unmoved
from tasks.serving.canary import Action, Better, Decision, Terms, Undecided, Worse, drain, watch


class Ended(BaseModel):
    """How a canary ended. The ends are of the difference of mean rewards, challenger less champion."""

    champion: int
    challenger: int
    action: Action
    reason: str
    sessions: dict[int, int]  # with a reward, by version
    low: float
    high: float
    cut: int  # sessions of the version that went that had not ended in time


@flow(name="canary", flow_run_name="canary-{version}", log_prints=True)
async def canary(
    version: int,
    share: Annotated[float, Field(gt=0, lt=1)] = 0.1,
    engines: list[str] | None = None,
    tolerance: Annotated[float, Field(ge=0)] = 0.0,
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95,
    reward_range: Annotated[list[float], Field(min_length=2, max_length=2)] = [0.0, 1.0],  # noqa: B006 - never changed
    deadline_s: Annotated[float, Field(gt=0)] = 86_400,
    poll_s: Annotated[float, Field(gt=0, le=3600)] = 60,
    drain_s: Annotated[float, Field(ge=0)] = 600,
    if_not_worse: Better = "promote",
    if_worse: Worse = "roll_back",
    if_undecided: Undecided = "ask",
) -> Ended:
    """Give a version a share of the new sessions, compare what they earn with the champion's, and promote it or roll it back.

    It needs two engines behind the gateway. Whole sessions stay on one version, by a hash of their id. Their rewards are
    compared by a test that holds at every look (docs/serving.md), so it ends as soon as it can.

    Args:
        version: The challenger: a registered version.
        share: Of the new sessions, for the challenger.
        engines: URLs of the engines that shall serve it meanwhile. Default: the last one that is not the stack's own.
        tolerance: By how much its mean reward may be below the champion's and still be called not worse. Larger ends sooner.
        confidence: Of the interval, at all looks together.
        reward_range: The bounds of the sessions' rewards, without which there is no interval.
        deadline_s: Seconds until it ends undecided.
        poll_s: Seconds between two looks, each of which ingests and labels.
        drain_s: Seconds that sessions have to end before their engine is given another version.
        if_not_worse: promote, or ask: the champion serves again, and a person moves the alias.
        if_worse: roll_back, or ask.
        if_undecided: ask, roll_back or promote.
    """
    terms = Terms(share, tolerance, deadline_s, poll_s, drain_s, if_not_worse, if_worse, if_undecided)
    bounds = (reward_range[0], reward_range[1])
    compare([], [], bounds=bounds, confidence=confidence)  # what is wrong with them is said before anything is done
    with alone():
        return await _run(version, engines, terms, bounds, confidence)


async def _run(
    version: int, engines: list[str] | None, terms: Terms, bounds: tuple[float, float], confidence: float
) -> Ended:
    setting = await asyncio.to_thread(survey, version, engines)
    where = ", ".join(setting.engines)
    print(f"canary of version {version} against {setting.champion} on {where}: {terms.share:.0%} of new sessions")
    live = Live(setting, now(), bounds, confidence)
    try:
        await asyncio.to_thread(_begin, live, terms)
        decision = await watch(Played(live), terms, _tell)
        cut = await drain(Played(live), decision.action, terms)
        await asyncio.to_thread(_end, setting, decision)
    except BaseException as error:  # whatever ends it, a cancellation too: the champion serves everywhere again
        try:
            why = f"the canary failed: {type(error).__name__}"
            await asyncio.to_thread(_end, setting, Decision("roll_back", why, None))
        except Exception as left:  # noqa: BLE001 - what ended the canary is what to raise
            print(f"the champion could not be put back everywhere ({left}): run `lakeloop reconcile`")
        raise
    await asyncio.to_thread(report, setting, decision, cut, live.since)
    found = decision.comparison
    assert found is not None
    return Ended(
        champion=setting.champion,
        challenger=version,
        action=decision.action,
        reason=decision.reason,
        sessions={setting.champion: found.champion_sessions, version: found.challenger_sessions},
        low=found.low,
        high=found.high,
        cut=cut,
    )


class Played:
    """The parts of a canary on the real stack: see `tasks.serving.canary.Parts`."""

    def __init__(self, live: Live) -> None:
        self._live = live

    async def part(self, share: float, for_s: float) -> None:
        await patiently(asyncio.to_thread, self._live.part, share, for_s)

    async def open_sessions(self, which: Literal["champion", "challenger"]) -> int:
        return await patiently(asyncio.to_thread, self._live.open_sessions, which)

    async def compare(self) -> Comparison:
        """What has ended is landed and judged first."""
        landed = await patiently(ingest)
        if landed.run_ids:
            with suppress(CoverageError):  # too few have a reward yet
                await asyncio.to_thread(label, rubrics=current_rubrics(["external"]), run_ids=landed.run_ids)
        return await patiently(asyncio.to_thread, self._live.compare)

    async def lost(self) -> str | None:
        return await patiently(asyncio.to_thread, self._live.lost)


def _begin(live: Live, terms: Terms) -> None:
    """Sessions of now are the champion's; then the challenger is served where it shall be."""
    setting = live.setting
    with deploying():
        live.part(0.0, terms.drain_s + 600)
        promote(setting.challenger, alias=CHALLENGER, why=f"canary, {terms.share:.0%} of the sessions")
        serve(setting.challenger, swap="wait", engines=setting.engines)


def _end(setting: Setting, decision: Decision) -> None:
    """What was decided becomes what is served."""
    why = f"canary: {decision.reason}"
    with deploying():
        if decision.action == "promote":
            unmoved(setting.challenger, setting.champion)
            serve(setting.challenger)
            promote(setting.challenger, why=why, evidence=evidence(decision), expected=setting.champion)
        else:
            serve(stays(setting), engines=setting.engines)
        stop_splitting()
        if decision.action != "ask":
            withdraw(setting, why, evidence(decision))


def _tell(found: Comparison) -> None:
    print(
        f"{found.challenger_sessions} sessions of the challenger, {found.champion_sessions} of the champion: "
        f"difference {found.low:+.3f} to {found.high:+.3f}"
    )
