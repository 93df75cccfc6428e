"""What a loop waits for, as a page in Prefect that is kept up while the loop runs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from lakehouse.waiting import Loop, loops
from tasks.progress import Page

SHOWN_S = 30.0  # each look is a query of the lake


@asynccontextmanager
async def waits_shown(loop_id: str) -> AsyncIterator[None]:
    """While the block runs there is a page with the key `loop-waits`. `lakeloop status` says the same."""
    page = await Page.begin("loop-waits", f"Loop `{loop_id}` begins.", "What the loop waits for, and since when")
    keeping = asyncio.create_task(_keep(page, loop_id))
    try:
        yield
    finally:
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping
        await _once(page, loop_id)


async def _keep(page: Page, loop_id: str) -> None:
    while True:
        await asyncio.sleep(SHOWN_S)
        await _once(page, loop_id)


async def _once(page: Page, loop_id: str) -> None:
    found = next((one for one in await asyncio.to_thread(loops, None, shown=100) if one.loop_id == loop_id), None)
    if found is not None:
        await page.show(told(found))


def told(loop: Loop) -> str:
    """A loop as Markdown."""
    version = "" if loop.version is None else f", version {loop.version}"
    made_of = "" if loop.training_set_id is None else f" (training set `{loop.training_set_id}`{version})"
    rows = {
        "begun": loop.begun,
        "in flight, or broken off": loop.in_flight,
        "settled": loop.settled,
        "consumed by a step": loop.consumed,
        "waiting for one": loop.waiting,
        "failed": loop.failed,
    }
    table = "\n".join(f"| {name} | {count} |" for name, count in rows.items())
    return (
        f"Loop `{loop.loop_id}`, step {loop.step}{made_of}: waits for **{loop.waits_for}** since {loop.since:%Y-%m-%d %H:%M:%S} "
        f"UTC.\n\n| groups | |\n|---|---|\n{table}\n"
    )
