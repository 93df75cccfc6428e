"""Trajectories as tensors-to-be, in AReaL's shape: one row per call, or one per leaf of the call tree."""

from math import isfinite
from typing import Any, Literal

from sandboxes.gateway.errors import Conflict
from sandboxes.gateway.sessions.lines import Lines
from sandboxes.gateway.sessions.recorded import DEMONSTRATED, Recorded
from sandboxes.gateway.sessions.sessions import Session


def trajectories(
    session: Session, *, discount: float, style: Literal["individual", "concat"], drop_retry_orphans: bool
) -> dict[str, Any]:
    """Rows by call id: `rewards`, `turn_rewards`, and, of one length, `input_ids, loss_mask, logprobs, versions,
    turn_ids, attention_mask`. Credit flows as `lines.Lines` says.

    `rewards` is the credit of the row's last call alone, as in AReaL. The token at `i` was sampled by a call whose credit is
    `turn_rewards[turn_ids[i]]`; where `turn_ids[i]` is -1, by none.

    A masked session has loss_mask 0 everywhere, and so has a call whose tokens are missing. Conflict where rewards add up
    to no number, as a journal of an earlier release may have them.
    """
    calls = [call for call in session.calls if call.answered]
    if drop_retry_orphans:
        calls = _without_orphans(calls)
    per_call = {row.call_id: row.reward for row in session.rewards if row.call_id}  # the newest counts
    whole = [row.reward for row in session.rewards if row.scope == "episode"]
    credit = Lines(calls).credits(per_call, whole[-1] if whole else 0.0, discount)
    lost = next((call_id for call_id, value in credit.items() if not isfinite(value)), None)
    if lost is not None:
        raise Conflict(
            f"the rewards that reach call {lost} add up to {credit[lost]}: give smaller ones", code="no_number"
        )
    parents = {call.intent.parent_call_id for call in calls}
    chosen = calls if style == "individual" else [call for call in calls if call.intent.call_id not in parents]
    by_id = {call.intent.call_id: call for call in calls}
    masked = session.masked is not None
    rows = {}
    for call in chosen:
        path = [call] if style == "individual" else _path(call, by_id)
        rows[call.intent.call_id] = {
            **_row(path, masked=masked),
            "rewards": credit[call.intent.call_id],
            "turn_rewards": [credit[turn.intent.call_id] for turn in path],
        }
    return rows


def _without_orphans(calls: list[Recorded]) -> list[Recorded]:
    """Drop requests that nothing continues where another one with the same prompt was continued or came later.

    The choices of one request stand and fall together: they were asked for, each of them.
    """
    parents = {call.intent.parent_call_id for call in calls}
    continued = {call.intent.first_choice for call in calls if call.intent.call_id in parents}
    by_prompt: dict[tuple[int, ...], list[Recorded]] = {}
    for call in calls:
        by_prompt.setdefault(tuple(call.intent.prompt_token_ids), []).append(call)
    kept = {
        call.intent.call_id
        for twins in by_prompt.values()
        for call in twins
        if call.intent.first_choice in continued
        or (
            call.intent.first_choice == twins[-1].intent.first_choice
            and not any(twin.intent.first_choice in continued for twin in twins)
        )
    }
    return [call for call in calls if call.intent.call_id in kept]


def _path(leaf: Recorded, by_id: dict[str, Recorded]) -> list[Recorded]:
    """From the root to `leaf`."""
    path = [leaf]
    while path[-1].intent.parent_call_id in by_id:
        path.append(by_id[path[-1].intent.parent_call_id])
    return path[::-1]


def _row(path: list[Recorded], *, masked: bool) -> dict[str, list[Any]]:
    """The leaf's ids with every ancestor's sampled tokens marked; `path` runs from the root to the leaf."""
    length = len(path[-1].all_token_ids)
    loss_mask, logprobs, versions, turns = [0] * length, [0.0] * length, [DEMONSTRATED] * length, [-1] * length
    for turn, call in enumerate(path):
        answer = call.answer
        assert answer is not None
        start = len(call.intent.prompt_token_ids)
        end = start + len(answer.completion_token_ids)
        turns[start:end] = [turn] * (end - start)
        if masked or answer.token_status != "exact":  # noqa: S105 - a status, no secret
            continue
        loss_mask[start:end] = [1] * (end - start)
        versions[start:end] = answer.weight_versions
        logprobs[start:end] = answer.logprobs or [0.0] * (end - start)
    return {
        "input_ids": path[-1].all_token_ids,
        "loss_mask": loss_mask,
        "logprobs": logprobs,
        "versions": versions,
        "turn_ids": turns,
        "attention_mask": [1] * length,
    }
