"""The audit: who did what to the lake, appended and never changed.

Whoever changes what may be seen or trained on writes one entry once the change is made. An act that is tried again may be
noted again: an entry says that it happened, not how often.
"""

import getpass
import os
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import uuid4

import polars as pl

from lakehouse.query import connect
from lakehouse.records import AuditEntry, dumps, now
from lakehouse.write import Writer


def note(
    lake: str | None, action: str, object: str, detail: Mapping[str, Any] | None = None, actor: str | None = None
) -> AuditEntry:
    """Append an entry: `action` in a few words ("declare source"), `object` what it was done to, `detail` as JSON.

    Never put content, a secret or a subject's name into it. `actor` None: the user of this process. A Prefect task passes
    `tasks.acting.actor()`, which names the flow run too.
    """
    entry = AuditEntry(
        entry_id=f"au-{uuid4().hex}",
        actor=actor or user(),
        action=action,
        object=object,
        detail=dumps(dict(detail or {})),
        noted_at=now(),
    )
    Writer(lake).append("audit", [entry])
    return entry


def user() -> str:
    """The operating system's name of whoever runs this process; its number where it has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without a line in /etc/passwd
        return f"uid {os.getuid()}"


def entries(
    lake: str | None = None,
    *,
    action: str | None = None,
    object: str | None = None,
    actor: str | None = None,
    since: datetime | None = None,
    limit: int = 50,
) -> pl.DataFrame:
    """The newest entries that match every filter given, newest first. `object` and `actor` match any part."""
    with connect(lake) as connection:
        return connection.execute(
            """
            from audit
            where ($action is null or action = $action)
                and ($object is null or contains(object, $object))
                and ($actor is null or contains(actor, $actor))
                and ($since is null or noted_at >= $since)
            order by noted_at desc, entry_id
            limit $limit
            """,
            {"action": action, "object": object, "actor": actor, "since": since, "limit": limit},
        ).pl()
