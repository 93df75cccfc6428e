"""The warm pool: never more than it may have, never a box twice, nothing left when it ends."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from sandboxes.backends.base import BoxSpec, Limits, SandboxError
from sandboxes.backends.pool import START_S, Pool
from sandboxes.backends.scripted import ScriptedBackend, ScriptedBox, succeed
from sandboxes.deadline import Deadline


class Box(ScriptedBox):
    """A scripted box that can be started before it is known what for."""

    def __init__(self, spec):
        super().__init__(spec, succeed)
        self.spec = spec
        self.dead = False

    async def assign(self, spec):
        if self.dead:
            raise SandboxError("the box is gone: its lease ended")
        self.spec = spec
        self.files = dict(spec.files)


class Backend(ScriptedBackend):
    """Counts what is alive; starting takes a moment and may fail."""

    def __init__(self):
        super().__init__()
        self.most = 0
        self.failing = False
        self.starting = 0

    async def start(self, spec):
        self.starting += 1
        try:
            await asyncio.sleep(0.005)
        finally:
            self.starting -= 1
        if self.failing:
            raise SandboxError("no room")
        self.boxes.append(Box(spec))
        self.most = max(self.most, len(self.alive))
        return self.boxes[-1]

    @property
    def alive(self):
        return [box for box in self.boxes if not box.closed]


async def quiet(pool, backend):
    """Until nothing is being started or closed."""
    await until(lambda: not (pool._filling or backend.starting or pool._closing))


async def until(reached):
    async with asyncio.timeout(60):
        while not reached():  # noqa: ASYNC110 - the pool tells nobody
            await asyncio.sleep(0.002)


@pytest.fixture
def backend_():
    return Backend()


async def test_the_second_who_asks_gets_a_box_that_waited_with_his_own_tree(backend_):
    async with Pool(backend_, size=2, labels={"lakeloop.run": "r"}) as pool:
        first = await pool.start(BoxSpec(files={"a": b"1"}))
        await quiet(pool, backend_)
        second = await pool.start(BoxSpec(files={"a": b"2"}, env={"X": "1"}))
        assert (pool.served_cold, pool.served_warm) == (1, 1)
        assert second is not first
        assert second.files == {"a": b"2"}
        assert second.spec.env == {"X": "1"}


async def test_a_box_is_given_out_once(backend_):
    async with Pool(backend_, size=3) as pool:
        given_out = []
        for _ in range(10):
            box = await pool.start(BoxSpec())
            given_out.append(box)
            await box.close()
            await quiet(pool, backend_)
        assert len({id(box) for box in given_out}) == 10


async def test_no_more_boxes_wait_than_the_pool_may_have(backend_):
    async with Pool(backend_, size=3) as pool:
        boxes = await asyncio.gather(*(pool.start(BoxSpec()) for _ in range(20)))
        await quiet(pool, backend_)
        assert len(backend_.alive) == 23
        await asyncio.gather(*(box.close() for box in boxes))
        assert len(backend_.alive) == 3
    assert backend_.alive == []


async def test_boxes_are_of_the_image_and_limits_that_were_asked_for(backend_):
    async with Pool(backend_, size=2) as pool:
        for image in ("one", "two", "one", "two"):
            box = await pool.start(BoxSpec(image=image, limits=Limits(memory_mb=64)))
            await quiet(pool, backend_)
            assert box.spec.image == image
            assert box.spec.limits.memory_mb == 64
            waiting = [b.spec.image for b in backend_.alive if b.spec.limits.lease_s > Limits().lease_s]
            assert len(waiting) <= 2


async def test_a_kind_that_nobody_asks_for_any_more_makes_room(backend_):
    async with Pool(backend_, size=1) as pool:
        await pool.start(BoxSpec(image="old"))
        await quiet(pool, backend_)
        await pool.start(BoxSpec(image="new"))
        await quiet(pool, backend_)
        await pool.start(BoxSpec(image="new"))
        assert pool.served_warm == 1


async def test_a_box_that_ended_while_it_waited_is_passed_over(backend_):
    async with Pool(backend_, size=1) as pool:
        await pool.start(BoxSpec())
        await quiet(pool, backend_)
        dead = backend_.boxes[-1]
        dead.dead = True
        box = await pool.start(BoxSpec())
        assert box is not dead
        assert dead.closed


async def test_boxes_that_waited_too_long_are_closed_and_a_pool_nobody_asks_drains(backend_):
    async with Pool(backend_, size=2, warm_s=0.04) as pool:
        box = await pool.start(BoxSpec())
        await box.close()
        await until(lambda: len(backend_.boxes) == 2 and not backend_.alive)
        assert [one.closed for one in backend_.boxes] == [True, True]


async def test_a_box_that_waits_has_a_lease_for_the_longest_episode_that_asked(backend_):
    async with Pool(backend_, size=1, warm_s=50) as pool:
        with Deadline(2000, "an episode"):
            await pool.start(BoxSpec())
        await quiet(pool, backend_)
        assert 2045 < backend_.boxes[-1].spec.limits.lease_s - START_S <= 2050
        with Deadline(1000, "a short one"):
            short = await pool.start(BoxSpec())
        assert 995 < short.spec.limits.lease_s <= 1000
        await quiet(pool, backend_)
        assert pool.served_warm == 1
        assert 2045 < backend_.boxes[-1].spec.limits.lease_s - START_S <= 2050


async def test_a_box_whose_lease_would_end_too_early_is_passed_over(backend_):
    async with Pool(backend_, size=1) as pool:
        await pool.start(BoxSpec())
        await quiet(pool, backend_)
        waits = backend_.boxes[-1]
        with Deadline(3000, "an episode"):
            box = await pool.start(BoxSpec())
        assert box is not waits
        await until(lambda: waits.closed)


async def test_a_box_that_cannot_be_kept_warm_is_no_ones_failure_until_he_asks(backend_):
    async with Pool(backend_, size=2) as pool:
        await pool.start(BoxSpec())
        backend_.failing = True
        await quiet(pool, backend_)
        with pytest.raises(SandboxError, match="no room"):
            await pool.start(BoxSpec())


async def test_boxes_that_see_a_gateway_are_started_for_who_asks(backend_, tmp_path):
    async with Pool(backend_, size=2) as pool:
        spec = BoxSpec(gateway=Path(tmp_path / "socket"))
        await pool.start(spec)
        await quiet(pool, backend_)
        assert [box.spec for box in backend_.boxes] == [spec]


async def test_a_wrong_tree_is_the_askers_error_and_the_box_is_closed(backend_, monkeypatch):
    async def refuse(box, spec):
        raise ValueError("'../x' is not a plain path")

    async with Pool(backend_, size=1) as pool:
        await pool.start(BoxSpec())
        await quiet(pool, backend_)
        monkeypatch.setattr(Box, "assign", refuse)
        with pytest.raises(ValueError, match="plain path"):
            await pool.start(BoxSpec(files={"../x": b""}))
        assert backend_.boxes[1].closed


async def test_a_pool_that_ends_while_it_starts_boxes_leaves_none(backend_):
    async with Pool(backend_, size=4) as pool:
        await asyncio.gather(*(pool.start(BoxSpec()) for _ in range(4)))
    assert (backend_.starting, len(backend_.alive)) == (0, 4)  # those that were given out are their holders'
    with pytest.raises(SandboxError, match="the pool is closed"):
        await pool.start(BoxSpec())


def test_a_pool_of_nothing_is_refused(backend_):
    with pytest.raises(ValueError, match="no pool"):
        Pool(backend_, size=0)


async def test_real_boxes_are_handed_over_with_tree_environment_and_lease(backend):
    limits = Limits(memory_mb=128, lease_s=60)
    async with Pool(backend, size=1) as pool:
        first = await pool.start(BoxSpec(limits=limits))
        await quiet(pool, Nobody)
        second = await pool.start(BoxSpec(files={"sub/a": b"mine"}, env={"COLOUR": "red"}, limits=limits))
        assert pool.served_warm == 1
        said = await second.exec(["sh", "-c", "cat sub/a; echo $COLOUR"], timeout_s=20)
        assert said.stdout == b"minered\n"
        await quiet(pool, Nobody)
        short = await pool.start(BoxSpec(limits=limits))
        await short.assign(BoxSpec(limits=replace(limits, lease_s=0.5)))
        with pytest.raises(SandboxError, match=r"its lease of 0 s ended"):
            await short.exec(["sleep", "30"], timeout_s=60)
        for box in (first, second, short):
            await box.close()


class Nobody:
    starting = 0
