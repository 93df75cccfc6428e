"""Which failures of the lake pass by themselves: a busy lock, another writer's commit, a store that does not answer."""

import duckdb
from deltalake.exceptions import CommitFailedError

from lakehouse.store import LakeBusy, Overtaken

PASSING: tuple[type[BaseException], ...] = (
    LakeBusy,
    Overtaken,
    CommitFailedError,
    duckdb.IOException,
    duckdb.HTTPException,
)
