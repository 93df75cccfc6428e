"""One deadline, from whoever sets it to whoever waits."""

import asyncio

from sandboxes.deadline import Deadline


def test_it_clips_and_says_what_went_on():
    deadline = Deadline(60, "the episode")
    assert deadline.clip(5) == 5
    assert 59 < deadline.clip(100) <= 60
    assert str(deadline.exceeded("the command ran")) == "the 60 s for the episode were over while the command ran"
    assert Deadline(0, "x").left() == 0


def test_an_inner_one_never_ends_later_and_the_outer_one_is_back_after_it():
    assert Deadline.current() is None
    with Deadline(1, "outer") as outer:
        with Deadline(10, "inner") as inner:
            assert Deadline.current() is inner
            assert inner.left() <= 1
        assert Deadline.current() is outer
    assert Deadline.current() is None


def test_what_was_begun_under_it_may_be_needed_longer_than_it_and_until_the_outer_one_is_over():
    assert 59 < Deadline(60, "x").lasts() <= 60
    with Deadline(60, "outer", after_s=40):
        assert 99 < Deadline(10, "inner").lasts() <= 100
        assert 109 < Deadline(10, "inner", after_s=100).lasts() <= 110
    assert Deadline(0, "x").lasts() == 0


async def test_each_task_has_its_own():
    async def under(seconds: float) -> float:
        with Deadline(seconds, "a task"):
            await asyncio.sleep(0.01)
            current = Deadline.current()
            assert current is not None
            return current.seconds

    assert await asyncio.gather(under(1), under(2), under(3)) == [1, 2, 3]
