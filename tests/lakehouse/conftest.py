"""Made-up episodes for the lake's tests: small token lists, fixed times."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lakehouse.records import Action, Call, Dispatch, Episode, Evidence, ModelVersion, Problem, episode_id, group_id
from lakehouse.write import Landed, Writer

AT = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Batch:
    """What one shard lands."""

    episodes: list[Episode] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    evidence: list[Evidence] = field(default_factory=list)

    def __add__(self, other: "Batch") -> "Batch":
        return Batch(
            self.episodes + other.episodes,
            self.calls + other.calls,
            self.actions + other.actions,
            self.evidence + other.evidence,
        )

    def land(self, lake: str) -> Landed:
        return Writer(lake).land(self.episodes, self.calls, self.actions, self.evidence)


class Make:
    """Builders; every argument has a dull default."""

    def problem(self, problem_id: str = "p", *, kind: str = "search", **changes: Any) -> Problem:
        values: dict[str, Any] = {
            "problem_id": problem_id,
            "kind": kind,
            "source": "made up",
            "split": "train",
            "title": "t",
            "prompt": "q",
            "spec": "{}",
            "licence": "CC0-1.0",
            "allowed_uses": ["training", "evaluation"],
            "difficulty": 0.5,
            "oracle_passed": True,
            "null_failed": True,
            "created_at": AT,
        }
        return Problem(**values | changes)

    def dispatch(self, problem_id: str = "p", sample: int = 0, *, run: str = "r", **changes: Any) -> Dispatch:
        return Dispatch(
            episode_id=episode_id(run, problem_id, sample),
            run_id=run,
            group_id=group_id(run, problem_id),
            problem_id=problem_id,
            sample_index=sample,
            agent="scripted",
            mode="policy",
            purpose="train",
            created_at=AT,
        ).model_copy(update=changes)

    def version(self, version: int, parent: int | None = None, *, name: str = "toy") -> ModelVersion:
        """A registered version and what it was trained from."""
        return ModelVersion(
            name=name,
            version=version,
            parent_version=parent,
            training_set_id=None,
            mlflow_run_id="m",
            weights_path="w",
            weights_digest="d",
            stage="grpo",
            commit="",
            created_at=AT,
        )

    def call(
        self, prompt: Sequence[int], completion: Sequence[int], *, index: int = 0, version: int = 1, **changes: Any
    ) -> Call:
        values: dict[str, Any] = {
            "call_id": f"c{index}",
            "session_id": "s",
            "episode_id": "",
            "attempt_id": "",
            "call_index": index,
            "parent_call_id": None,
            "segment": 0,
            "fork_reason": None,
            "prompt_token_ids": list(prompt),
            "completion_token_ids": list(completion),
            "logprobs": [-0.5] * len(completion),
            "weight_versions": [version] * len(completion),
            "token_status": "exact",
            "token_route": "generate",
            "status": "ok",
            "finish_reason": "stop",
            "request_messages": "[]",
            "response_message": "{}",
            "tools": "[]",
            "sampling": "{}",
            "template_digest": "d",
            "engine_version": "0",
            "latency_s": 0.1,
            "started_at": AT,
        }
        return Call(**values | changes)

    def batch(
        self,
        problem_id: str = "p",
        sample: int = 0,
        *,
        run: str = "r",
        attempt: str = "a0",
        match: bool | None = True,
        calls: Sequence[Call] | None = None,
        **changes: Any,
    ) -> Batch:
        """A search episode with its calls, one action per call, and evidence (none where `match` is None)."""
        name = episode_id(run, problem_id, sample)
        own = {"episode_id": name, "attempt_id": attempt}
        calls = [self.call([1, 2, 3], [4, 5])] if calls is None else calls
        calls = [call.model_copy(update=own) for call in calls]
        values: dict[str, Any] = own | {
            "run_id": run,
            "group_id": group_id(run, problem_id),
            "problem_id": problem_id,
            "problem_kind": "search",
            "split": "train",
            "sample_index": sample,
            "agent": "scripted",
            "backend": "none",
            "mode": "policy",
            "purpose": "train",
            "status": "ok",
            "error": None,
            "session_id": "s",
            "model_name": "toy",
            "model_version": 1,
            "n_calls": len(calls),
            "n_prompt_tokens": sum(len(call.prompt_token_ids) for call in calls),
            "n_completion_tokens": sum(len(call.completion_token_ids) for call in calls),
            "duration_s": 1.0,
            "started_at": AT,
            "ended_at": AT,
        }
        actions = [
            Action(
                **own,
                action_index=i,
                call_id=call.call_id,
                tool="search",
                arguments="{}",
                observation="o",
                is_error=False,
                duration_s=0.1,
                started_at=AT,
            )
            for i, call in enumerate(calls)
        ]
        evidence = (
            [] if match is None else [self.evidence("answer", {"given": "x", "accepted": ["x"], "match": match}, **own)]
        )
        return Batch([Episode(**values | changes)], calls, actions, evidence)

    def evidence(self, name: str, value: dict[str, Any], *, episode_id: str, attempt_id: str) -> Evidence:
        return Evidence(
            episode_id=episode_id,
            attempt_id=attempt_id,
            name=name,
            value=json.dumps(value),
            producer="test 1",
            created_at=AT,
        )

    def group(self, matches: Sequence[bool | None], problem_id: str = "p", **changes: Any) -> Batch:
        """One group: a search episode per entry."""
        total = Batch()
        for sample, match in enumerate(matches):
            total += self.batch(problem_id, sample, match=match, **changes)
        return total


@pytest.fixture(scope="session")
def make() -> Make:
    return Make()


@pytest.fixture
def lake(tmp_path: Path) -> str:
    return str(tmp_path / "lake")
