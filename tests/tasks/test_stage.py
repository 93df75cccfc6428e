"""How many episodes go on at a time, within a stage and within one inside it."""

import asyncio
from types import SimpleNamespace

import pytest

from sandboxes.agents import Sampling
from tasks import stage


async def test_a_stage_within_another_shares_its_room_and_waits_for_no_place_that_it_is_part_of():
    async with stage._room(4, 2) as outer:
        async with stage._room(24, 24) as inner:
            assert inner is outer
        asked = await asyncio.create_task(_asked())  # as a flow within the loop
        assert asked is outer
    async with stage._room(4, 0) as later:
        assert later is not outer


async def test_one_that_has_no_boxes_has_none_to_share():
    async with stage._room(4, 0) as outer, stage._room(4, 2) as inner:
        assert inner is not outer and inner.boxes == 2


@pytest.mark.parametrize(("version", "told"), [(None, (4, False)), (5, (5, True))])
async def test_an_episode_is_of_what_is_served_or_pinned_to_the_version_that_is_asked_for(monkeypatch, version, told):
    heard = []

    async def run_episode(intent, problem, *, model_version, pinned, **_):
        heard.append((model_version, pinned))

    async def advance():
        pass

    monkeypatch.setattr(stage, "run_episode", run_episode)
    async with stage._room(1, 0) as room:
        on = stage.Stage(
            stage.Play(Sampling(), "auto", 1, 1.0, version=version), SimpleNamespace(model_name="m", door=None),
            SimpleNamespace(served_version=lambda **_: 4), None, None, None, None, SimpleNamespace(advance=advance), room, 3,
        )  # fmt: skip
        await on.perform(SimpleNamespace(), SimpleNamespace(kind="search"))
    assert heard == [told]


async def _asked():
    async with stage._room(1, 0) as room:
        return room
