"""Without a flow run there is nobody to share with; with one: tests/flows/test_operations.py."""

from tasks.limits import place, places
from tasks.stack.limits import DEPLOYING, ENGINE


async def test_outside_of_a_flow_run_all_places_are_given():
    async with places(ENGINE, 7) as playing, places(ENGINE, 0) as none:
        assert (playing, none) == (7, 0)
    with place(DEPLOYING):
        pass
