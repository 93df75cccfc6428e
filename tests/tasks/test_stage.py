"""How many episodes go on at a time, within a stage and within one inside it."""

import asyncio

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


async def _asked():
    async with stage._room(1, 0) as room:
        return room
