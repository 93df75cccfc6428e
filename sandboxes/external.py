"""An outside application's gateway session as an episode: the same records as an episode that we played ourselves.

Everything is derived from the session, so doing it again gives the same ids, and the lake takes each once.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from lakehouse.records import Action, Call, Episode, Evidence, Problem, Status, digest, dumps, group_id, now
from sandboxes.episode import Result
from sandboxes.gateway.client import GatewayClient

KIND = "external"
PRODUCER = "lakeloop external 1"

Listed = Mapping[str, Any]  # a session as `GatewayClient.closed_sessions` tells of it


def episode_of(session: Listed) -> str:
    """The id of a session's episode. The number in a session's id begins anew with a new journal, so its start counts too."""
    return "ep-" + digest(KIND, session["session_id"], session["started_at"])[:24]


def run_of(session: Listed) -> str:
    """The run: all external sessions of a day (UTC). Those of one problem in it are a group."""
    return f"{KIND}-{datetime.fromisoformat(session['started_at']):%Y%m%d}"


async def receive(gateway: GatewayClient, session: Listed, problem: Problem | None, *, model_name: str) -> Result:
    """Seal a session, so that its record is what it stays, and read it. `problem` None: nobody has said what it is of."""
    await gateway.seal_sessions([session["session_id"]])
    name, key = session["session_id"], _key(session)
    report = await gateway.report(name)
    calls = await gateway.calls(name, **key)
    rewards = await gateway.rewards(name)
    status, error = ending(report, calls, rewards)
    episode = _episode(session, problem, calls, report, status, error, model_name)
    evidence = [
        Evidence(**key, name="rewards", value=dumps({"rows": _rows(rewards)}), producer=PRODUCER, created_at=now())
    ]
    return Result(episode, calls, actions(calls), evidence if rewards else [])


def ending(report: Mapping[str, Any], calls: Sequence[Call], rewards: Sequence[Any]) -> tuple[Status, str | None]:
    """How the episode ended, as far as the gateway saw it, and why.

    Where the last call was lost to the engine, or the client left it, the application judged something else than the
    policy: its reward is kept as evidence, and never becomes one.
    """
    if not calls:
        return Status.AGENT_ERROR, "the application made no model call"
    last = Status(calls[-1].status)
    if not last.trainable:
        return last, f"the application's last model call ended as {last}"
    reason = report["reason"] or ""
    if reason.startswith("idle") and not rewards:
        return Status.TIMEOUT, f"the application gave no reward and did not end its session: {reason}"
    if report["budget_hit"]:
        return Status.TRUNCATED, report["budget_hit"]
    return last, None if rewards else "the application gave no reward"


def actions(calls: Sequence[Call]) -> list[Action]:
    """The tool calls whose results came back to the model: read from the request that went on from the call.

    How long a tool ran is the time between the two calls. Whether it failed only its text can say.
    """
    following = {call.parent_call_id: call for call in reversed(calls)}
    found: list[Action] = []
    for call in calls:
        after = following.get(call.call_id)
        asked = (json.loads(call.response_message) or {}).get("tool_calls") or []
        results = _results(json.loads(after.request_messages)) if after else {}
        for one in asked:
            if after is None or one["id"] not in results:
                continue
            ended = call.started_at + timedelta(seconds=call.latency_s)
            found.append(
                Action(
                    episode_id=call.episode_id,
                    attempt_id=call.attempt_id,
                    action_index=len(found),
                    call_id=call.call_id,
                    tool=one["function"]["name"],
                    arguments=one["function"]["arguments"],
                    observation=results[one["id"]],
                    is_error=False,
                    duration_s=max(0.0, (after.started_at - ended).total_seconds()),
                    started_at=ended,
                )
            )
    return found


def _results(messages: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """What tools answered after the last assistant message, by the id of their call."""
    last = max((at for at, message in enumerate(messages) if message["role"] == "assistant"), default=len(messages))
    told = [message for message in messages[last + 1 :] if message["role"] == "tool"]
    return {message["tool_call_id"]: _text(message["content"]) for message in told}


def _text(content: Any) -> str:
    return content if isinstance(content, str) else dumps(content)


def _rows(rewards: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """As they were given, oldest first; `call` None is a reward for the whole."""
    return [
        {
            "call": row["interaction_id"],
            "reward": row["reward"],
            "labeller": row["labeller"],
            "reason": row["reason"],
            "given_at": row["given_at"],
        }
        for row in rewards
    ]


def _key(session: Listed) -> dict[str, str]:
    episode_id = episode_of(session)
    return {"episode_id": episode_id, "attempt_id": "at-" + digest(episode_id)[:16]}


def _episode(
    session: Listed,
    problem: Problem | None,
    calls: Sequence[Call],
    report: Mapping[str, Any],
    status: Status,
    error: str | None,
    model_name: str,
) -> Episode:
    run_id, edition = run_of(session), problem.edition if problem else None
    started, ended = (datetime.fromisoformat(report[name]) for name in ("started_at", "ended_at"))
    versions = [version for call in calls for version in call.weight_versions if version >= 0]
    return Episode(
        **_key(session),
        run_id=run_id,
        group_id=group_id(run_id, session["task_id"], edition),
        problem_id=session["task_id"],
        problem_kind=KIND,
        split=problem.split if problem else "train",
        sample_index=session["n"],
        agent=KIND,
        backend="none",
        mode=session["mode"],
        purpose=KIND if session["mode"] == "policy" else "demonstration",
        status=status,
        error=error,
        session_id=session["session_id"],
        model_name=model_name,
        model_version=versions[0] if versions and session["mode"] == "policy" else None,
        n_calls=len(calls),
        n_prompt_tokens=sum(len(call.prompt_token_ids) for call in calls),
        n_completion_tokens=sum(len(call.completion_token_ids) for call in calls),
        duration_s=(ended - started).total_seconds(),
        started_at=started,
        ended_at=ended,
        problem_edition=edition,
        subject=session.get("subject"),
    )
