"""What the operator is told of a session: its state, how much was captured, budgets, keys, and the shape of its tree."""

import asyncio
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import Any

from sandboxes.gateway.sessions.recorded import Recorded
from sandboxes.gateway.sessions.schema import KeyRow
from sandboxes.gateway.sessions.sessions import Session


async def report(session: Session, keys: Sequence[KeyRow]) -> dict[str, Any]:
    """One JSON object. Keys are told by scope and times, never by value or digest."""
    row = session.row
    return {
        "session_id": row.session_id,
        "task_id": row.task_id,
        "mode": row.mode,
        "version": row.version,
        "state": session.state,
        "reason": session.reason,
        "masked": session.masked,
        "started_at": row.started_at,
        "ended_at": row.ended_at,
        "sealed_at": row.sealed_at,
        "delivered_fraction": session.delivered_fraction,
        "calls": _counts(session.calls, session.exact),
        "tree": await asyncio.to_thread(shape, [call for call in session.calls if call.answered]),
        "limits": session.budget.limits.model_dump(exclude_none=True),
        "used": session.budget.used,
        "budget_hit": session.budget_hit,
        "rewards": len(session.rewards),
        "keys": [
            {
                "scopes": key.scopes.split(),
                "created_at": key.created_at,
                "expires_at": key.expires_at,
                "revoked_at": key.revoked_at,
            }
            for key in keys
        ],
    }


def _counts(calls: Sequence[Recorded], exact: int) -> dict[str, int]:
    return {
        "dispatched": len(calls),
        "running": sum(call.answer is None for call in calls),
        "answered": sum(call.answered for call in calls),
        "exact": exact,
    }


def shape(calls: Sequence[Recorded]) -> dict[str, Any]:
    """Of answered calls: segments, forks by reason, tokens, and tokens over those of the tree, shared prefixes once.

    A ratio of 1 is a session without a second turn; training on calls as rows of their own costs this many times more
    than training on the tree.
    """
    tokens = sum(len(call.all_token_ids) for call in calls)
    distinct = _distinct(sorted(array("I", call.all_token_ids).tobytes() for call in calls))
    return {
        "segments": len({call.intent.segment for call in calls}),
        "forks": dict(Counter(call.intent.fork_reason for call in calls if call.intent.fork_reason)),
        "tokens": tokens,
        "distinct_tokens": distinct,
        "duplication_ratio": tokens / distinct if distinct else None,
    }


def _distinct(rows: Sequence[bytes]) -> int:
    """Nodes of the trie over sorted rows of tokens: each adds what it does not share with the one before."""
    width = array("I").itemsize
    total = 0
    before = b""
    for row in rows:
        total += len(row) // width - _common(before, row) // width
        before = row
    return total


def _common(one: bytes, other: bytes) -> int:
    """Length of the longest common prefix, by halving: comparing is quick, and Python is not."""
    most = min(len(one), len(other))
    return bisect_left(range(most), True, key=lambda size: one[: size + 1] != other[: size + 1])
