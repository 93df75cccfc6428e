"""Play scripted agents on problems without a model: hacks, which must score nothing, and the oracle, which must score all."""

from types import TracebackType
from typing import Any, Self, cast

from lakehouse.records import Call, Dispatch, Problem, episode_id, group_id, now
from sandboxes.agents import Sampling
from sandboxes.backends.base import Backend
from sandboxes.episode import Result, run_episode
from sandboxes.gateway.client import GatewayClient, Session

EPISODE_S = 300.0
GOLD = "scripted"  # plays the oracle's plan


class NoModel:
    """In a gateway's place for agents that call no model: sessions without calls."""

    openai_base_url = "http://127.0.0.1:9/v1"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Nothing is held."""

    async def start_session(self, task_id: str, **_: Any) -> Session:
        return Session(session_id=f"no-model-{task_id}", api_key="", reward_key="")

    async def end_session(self, session: Session) -> None:
        """Nothing is held."""

    async def calls(self, session_id: str, **_: Any) -> list[Call]:
        return []


async def play(agent: str, problem: Problem, backend: Backend, *, run_id: str = "attack") -> Result:
    """One episode of an agent that needs no model, graded as every episode is."""
    run_id = f"{run_id}/{agent}"
    dispatch = Dispatch(
        episode_id=episode_id(run_id, problem.problem_id, 0),
        run_id=run_id,
        group_id=group_id(run_id, problem.problem_id),
        problem_id=problem.problem_id,
        sample_index=0,
        agent=agent,
        mode="policy",
        purpose="attack",
        created_at=now(),
    )
    return await run_episode(
        dispatch,
        problem,
        gateway=cast(GatewayClient, NoModel()),
        backend=backend,
        sampling=Sampling(),
        deadline_s=EPISODE_S,
        model_name="none",
        model_version=None,
    )
