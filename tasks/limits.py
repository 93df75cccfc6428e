"""Places of what all flow runs share: Prefect's global concurrency limits, held by leases.

A lease is renewed while its holder lives. What a killed one held comes back when the lease is over; so does what was held
while Prefect was down for so long, for the work goes on: a limit is there for speed, and no reason to lose episodes.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from uuid import UUID

import httpx
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import ConcurrencyLeaseHolder
from prefect.concurrency.asyncio import ConcurrencySlotAcquisitionError, concurrency
from prefect.concurrency.sync import concurrency as concurrency_sync
from prefect.exceptions import ObjectNotFound, PrefectException
from prefect.runtime import flow_run, task_run

LEASE_S = 60.0  # the least that Prefect takes; three quarters of it pass between renewals
POLL_S = 1.0
DEADLINE_S = 3600.0
AWAY_S = 120.0  # a server that is started again takes less

log = logging.getLogger(__name__)


class NoPlace(RuntimeError):
    """Others held all places of a limit for too long, or the limit is not there."""


@asynccontextmanager
async def places(name: str, wanted: int, *, deadline_s: float = DEADLINE_S) -> AsyncIterator[int]:
    """Hold as many places of a limit as are free, one at least and `wanted` at most; how many. 0 where none is wanted.

    Outside of a flow run there is nobody to share with. NoPlace after the deadline.
    """
    if not wanted or not flow_run.id:
        yield wanted
        return
    held = AsyncExitStack()
    try:
        yield await _take(held, name, wanted, deadline_s)
    finally:
        with _forgiving(name):
            await held.aclose()


@contextmanager
def place(name: str, *, deadline_s: float = DEADLINE_S) -> Iterator[None]:
    """Hold one place of a limit, waiting for it. NoPlace after the deadline."""
    if not flow_run.id:
        yield
        return
    lease = concurrency_sync(
        name,
        timeout_seconds=deadline_s,
        lease_duration=LEASE_S,
        strict=True,
        holder=_holder(),
        raise_on_lease_renewal_failure=False,
    )
    try:
        lease.__enter__()
    except TimeoutError:
        raise NoPlace(_waited(name, deadline_s)) from None
    except ConcurrencySlotAcquisitionError as error:
        raise NoPlace(f"{error}. `lakeloop up` creates the limits that are missing") from error
    try:
        yield
    finally:
        with _forgiving(name):
            lease.__exit__(None, None, None)


async def _take(held: AsyncExitStack, name: str, wanted: int, deadline_s: float) -> int:
    end = time.monotonic() + deadline_s
    heard = time.monotonic()
    async with get_client() as prefect:
        while True:
            try:
                limit = await prefect.read_global_concurrency_limit_by_name(name)
                heard = time.monotonic()
            except ObjectNotFound as error:
                raise NoPlace(f"Prefect has no concurrency limit {name}: `lakeloop up` creates it") from error
            except httpx.TransportError as error:
                if time.monotonic() - heard > min(AWAY_S, deadline_s):
                    told = f"Prefect was asked for a place of {name} and did not answer for {time.monotonic() - heard:.0f} s"
                    raise NoPlace(f"{told} ({error}): `lakeloop up` starts it again") from error
                await asyncio.sleep(POLL_S)
                continue
            if not limit.active:
                return wanted
            free = min(wanted, limit.limit - limit.active_slots)
            if free > 0:
                lease = concurrency(
                    name,
                    occupy=free,
                    max_retries=0,
                    lease_duration=LEASE_S,
                    strict=True,
                    holder=_holder(),
                    raise_on_lease_renewal_failure=False,
                )
                try:
                    await held.enter_async_context(lease)
                except ConcurrencySlotAcquisitionError:
                    pass  # somebody was faster
                else:
                    return free
            if time.monotonic() > end:
                raise NoPlace(_waited(name, deadline_s))
            await asyncio.sleep(POLL_S)


@contextmanager
def _forgiving(name: str) -> Iterator[None]:
    """The work is done: a server that is away now gives the places back by itself."""
    try:
        yield
    except (httpx.HTTPError, PrefectException) as error:
        log.warning("places of %s could not be given back (%s): they come back within %.0f s", name, error, LEASE_S)


def _holder() -> ConcurrencyLeaseHolder:
    """Who is shown in the UI as holding them."""
    if task_run.id:
        return ConcurrencyLeaseHolder(type="task_run", id=UUID(task_run.id))
    return ConcurrencyLeaseHolder(type="flow_run", id=UUID(flow_run.id))


def _waited(name: str, deadline_s: float) -> str:
    return (
        f"waited {deadline_s:.0f} s for a place of the concurrency limit {name}: the Prefect UI (Concurrency) shows who holds "
        "them, and there they can be made more"
    )
