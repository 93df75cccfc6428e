"""What has been erased, as every reader and writer of the lake sees it: ids that never land again, versions that are gone.

An erased episode leaves one word behind, the tombstone of its id: enough to know it when it comes again, and nothing else.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping

from lakehouse import store


class ErasedVersion(LookupError):
    """A pinned version of a table holds rows that were erased; its files are gone."""


def tombstone(episode_id: str) -> str:
    """What stands for an erased id. In SQL: `'er-' || substr(sha256(episode_id), 1, 24)`."""
    return "er-" + hashlib.sha256(episode_id.encode()).hexdigest()[:24]


def erased_among(lake: str, episode_ids: Iterable[str]) -> set[str]:
    """Those of these ids that were erased, or are being erased now."""
    delta = store.opened(lake, "erasures")
    if delta is None:
        return set()
    stones = store.read(lake, delta, ["episode_ids"])["episode_ids"].combine_chunks().flatten().to_pylist()
    gone = set(stones)
    return {one for one in episode_ids if tombstone(one) in gone} if gone else set()


def check_pins(lake: str, pinned: Mapping[str, int]) -> None:
    """ErasedVersion where a pinned version of a table had files that an erasure or retention removed."""
    delta = store.opened(lake, "erasures")
    if delta is None or not pinned:
        return
    for row in store.read(lake, delta, ["erasure_id", "reason", "erased_at", "lost_versions"]).to_pylist():
        for table, spans in json.loads(row["lost_versions"] or "{}").items():
            if table in pinned and any(first <= pinned[table] <= last for first, last in spans):
                raise ErasedVersion(
                    f"version {pinned[table]} of table {table} cannot be read any more: {row['erasure_id']} of "
                    f"{row['erased_at']:%Y-%m-%d} ({row['reason']}) removed files it was made of. Newer versions can be read"
                )
