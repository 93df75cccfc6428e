"""A box has the lease that its episode needs, whatever its limits say: none ends before the episode may."""

import asyncio
from types import SimpleNamespace

import pytest

from lakehouse.records import Dispatch, Problem, Status, now
from sandboxes import episode
from sandboxes.agents import Sampling
from sandboxes.agents.base import Ending
from sandboxes.backends.base import BoxSpec, Limits, SandboxError
from sandboxes.backends.pool import Pool
from sandboxes.deadline import Deadline
from sandboxes.episode import Attempt
from sandboxes.problems.kinds import KINDS

SHORT = Limits(memory_mb=64, lease_s=1)


class World:
    """Has a box from its beginning until it has been graded, as terminal problems do."""

    messages, tools = (), ()

    def __init__(self, box, name):
        self.box = box
        self.backend_name = name

    async def grade(self):
        await self.box.exec(["true"], timeout_s=10)
        return []


class Slow:
    """An agent that is at work for longer than the lease of the limits."""

    name, follows_plan = "slow", False

    async def run(self, job):
        done = await job.environment.box.exec(["sleep", "1.5"], timeout_s=10)
        assert done.exit_code == 0
        return Ending(Status.OK)


async def test_a_box_lives_until_its_episode_has_been_graded(backend, monkeypatch):
    async def open_(problem, boxes, *_):
        return World(await boxes.start(BoxSpec(limits=SHORT)), boxes.name)

    kind = SimpleNamespace(open=open_, expert=lambda _: (), boxed=True)
    monkeypatch.setitem(KINDS, "search", kind)
    problem = Problem.model_construct(
        problem_id="p", kind="search", source="mine", edition="e", split="train", prompt="", spec=""
    )
    dispatch = Dispatch(
        episode_id="e", run_id="r", group_id="g", problem_id="p", sample_index=0, agent="slow", mode="policy",
        purpose="train", created_at=now(),
    )  # fmt: skip
    gateway = SimpleNamespace(openai_base_url="http://gateway/v1")
    tried = Attempt(dispatch, problem, gateway, backend, Sampling(), 3.0, "m", agent=Slow())
    session = SimpleNamespace(api_key="key", session_id="s")
    try:
        await tried.guard(tried.act(session), 3.0, "the episode", episode.AFTER_S)
        assert (tried.status, tried.error) == (Status.OK, None)
        await asyncio.sleep(2)  # for a place: the deadline of the acting is over
        await tried.guard(tried.grade(), 10.0, "grading", episode.CLOSING_S)
        assert (tried.status, tried.error) == (Status.OK, None)
    finally:
        await tried.environment.box.close()


async def test_a_box_ends_when_nobody_under_its_deadline_needs_it_any_more(backend):
    with Deadline(0.5, "the episode", after_s=1.5):
        box = await backend.start(BoxSpec(limits=Limits(memory_mb=64)))
    try:
        with pytest.raises(SandboxError, match="lease of 2 s ended"):
            await box.exec(["sleep", "30"], timeout_s=60)
    finally:
        await box.close()


async def test_a_box_that_waited_lives_as_long_as_the_episode_that_gets_it(backend):
    async with Pool(backend, size=1, warm_s=2) as pool:
        with Deadline(8, "the episode"):
            first = await pool.start(BoxSpec(limits=SHORT))
            async with asyncio.timeout(30):
                while not any(pool._waiting.values()):  # noqa: ASYNC110 - the pool tells nobody
                    await asyncio.sleep(0.01)
            second = await pool.start(BoxSpec(limits=SHORT))
            try:
                assert pool.served_warm == 1
                done = await second.exec(["sleep", "3.5"], timeout_s=10)
                assert done.exit_code == 0
            finally:
                await first.close()
                await second.close()
