"""Given/expect examples of a rubric: `swe@2.yaml` beside `swe@2.sql`. They run over a lake made of them, without a stack.

    - name: half of the tests repaired
      given:
        evidence: {tests: {resolved: false, fail_to_pass: {passed: 1, total: 2}, pass_to_pass: {passed: 3, total: 3}}}
      expect: {status: scored, outcome: 0, reward: 0.1}

`given` is an episode, or a list of them, which then are one group; `expect` likewise. An episode has `status` (ok),
`evidence` by name (a list of values: one per producer), `actions` and `calls` (columns of each), `problem` and `episode`
(other columns); what is not given is dull. `expect` names what matters of a judgement; of `components` only the keys it
has; null: no row for this episode. `parameters` are those the rubric judges with.
"""

import json
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lakehouse.query import Connection, connect
from lakehouse.records import Action, Call, Episode, Evidence, Problem, Record
from lakehouse.rubrics.files import Asked, Rubric, RubricError
from lakehouse.rubrics.judging import judge
from lakehouse.write import Writer

AT = datetime(2026, 1, 1, tzinfo=UTC)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Given(_Strict):
    """An episode; what is left out has a dull default."""

    status: str = "ok"
    evidence: dict[str, Any] = {}
    actions: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    problem: dict[str, Any] = {}
    episode: dict[str, Any] = {}


class Expect(_Strict):
    """What its judgement must be; fields that are left out may be anything."""

    status: str | None = None
    outcome: float | None = None
    reward: float | None = None
    components: dict[str, Any] = {}


class Example(_Strict):
    """One entry of the file."""

    name: str
    given: Given | list[Given]
    expect: Expect | list[Expect | None] | None
    parameters: dict[str, str | float | bool] = {}

    @property
    def pairs(self) -> list[tuple[Given, Expect | None]]:
        given = self.given if isinstance(self.given, list) else [self.given]
        expect = self.expect if isinstance(self.expect, list) else [self.expect]
        return list(zip(given, expect, strict=True))


class _File(_Strict):
    examples: list[Example] = Field(min_length=1)


@dataclass(frozen=True)
class Outcome:
    """How an example went. `wrong` says what was expected and what was given; None: it holds."""

    rubric: str
    example: str
    wrong: str | None


def check_examples(rubric: Rubric) -> list[Outcome]:
    """Run a rubric's examples; empty where it has none. RubricError where the file or the rubric is wrong."""
    examples = read(rubric)
    if not examples:
        return []
    with tempfile.TemporaryDirectory() as lake:
        for table, records in tables(rubric, examples).items():
            Writer(lake).append(table, records)
        return _checked(rubric, examples, lake)


def read(rubric: Rubric) -> list[Example]:
    """The examples in a rubric's file. RubricError names the entry that is wrong."""
    if not rubric.examples.exists():
        return []
    try:
        found = _File(examples=yaml.safe_load(rubric.examples.read_text()))
        for example in found.examples:
            if len({len(side) for side in (example.given, example.expect) if isinstance(side, list)}) > 1 or (
                isinstance(example.given, list) is not isinstance(example.expect, list)
            ):
                raise RubricError(f"{rubric.examples}: {example.name!r} expects one judgement per given episode")
    except (yaml.YAMLError, ValidationError) as error:
        raise RubricError(f"{rubric.examples}: {error}") from error
    names = [example.name for example in found.examples]
    if len(set(names)) < len(names):
        raise RubricError(f"{rubric.examples}: two examples are called {max(names, key=names.count)!r}")
    return found.examples


def _checked(rubric: Rubric, examples: Sequence[Example], lake: str) -> list[Outcome]:
    together: dict[str, list[int]] = {}  # examples judged with the same parameters
    for number, example in enumerate(examples):
        together.setdefault(json.dumps(example.parameters, sort_keys=True), []).append(number)
    found: dict[int, str | None] = {}
    with connect(lake) as connection:
        for numbers in together.values():
            wanted = Asked(rubric, rubric.defaults | examples[numbers[0]].parameters)
            try:
                rows = _judged(connection, wanted, numbers)
                found |= {number: _told(number, examples[number], rows) for number in numbers}
            except RubricError:  # of one of them: each on its own
                for number in numbers:
                    try:
                        found[number] = _told(number, examples[number], _judged(connection, wanted, [number]))
                    except RubricError as error:
                        found[number] = str(error)
    return [Outcome(rubric.title, example.name, found[number]) for number, example in enumerate(examples)]


def _judged(connection: Connection, wanted: Asked, numbers: Sequence[int]) -> dict[str, dict[str, Any]]:
    """The judgements of these examples by episode."""
    runs = ", ".join(f"'example-{number}'" for number in numbers)
    judge(connection, wanted, where=f"run_id in ({runs})", empty_allowed=True)
    return {row["episode_id"]: row for row in connection.execute("from judged").pl().to_dicts()}


def _told(number: int, example: Example, rows: dict[str, dict[str, Any]]) -> str | None:
    told = (_wrong(expect, rows.get(_name(number, n))) for n, (_, expect) in enumerate(example.pairs))
    return next((one for one in told if one), None)


def _wrong(expect: Expect | None, row: dict[str, Any] | None) -> str | None:
    """How a judgement differs from what was expected; None where it does not."""
    if expect is None or row is None:
        return None if expect is None and row is None else f"expected {_plain(expect)}, found {row}"
    wanted = expect.model_dump(exclude_unset=True)
    components = json.loads(row["components"])
    found = {name: row[name] for name in wanted if name != "components"}
    if "components" in wanted:
        found["components"] = {name: components.get(name) for name in wanted["components"]}
    return None if _alike(wanted, found) else f"expected {wanted}, found {found}"


def _plain(expect: Expect | None) -> Any:
    return "no row" if expect is None else expect.model_dump(exclude_unset=True)


def _alike(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, dict) and isinstance(found, dict):
        return wanted.keys() == found.keys() and all(_alike(value, found[name]) for name, value in wanted.items())
    if isinstance(wanted, float) and isinstance(found, int | float) and not isinstance(found, bool):
        return math.isclose(wanted, found, abs_tol=1e-9)
    return bool(wanted == found)


def _name(number: int, sample: int) -> str:
    return f"ep-{number}-{sample}"


def tables(rubric: Rubric, examples: Sequence[Example]) -> dict[str, list[Record]]:
    """Every given episode with its children, as rows."""
    rows: dict[str, list[Record]] = {name: [] for name in ("problems", "episodes", "calls", "actions", "evidence")}
    for number, example in enumerate(examples):
        for sample, (given, _) in enumerate(example.pairs):
            try:
                for name, found in _rows(rubric, number, sample, given).items():
                    rows[name] += found
            except (ValidationError, TypeError) as error:
                raise RubricError(f"{rubric.examples}: {example.name!r}: {error}") from error
    return rows


def _rows(rubric: Rubric, number: int, sample: int, given: Given) -> dict[str, list[Record]]:
    kind = rubric.kinds[0] if rubric.kinds else "search"
    own: dict[str, Any] = {"episode_id": _name(number, sample), "attempt_id": "a"}
    call = _CALL | own
    action: dict[str, Any] = _ACTION | own
    facts = [
        (name, value, f"producer {nth}")
        for name, values in given.evidence.items()
        for nth, value in enumerate(values if isinstance(values, list) else [values])
    ]
    episode: dict[str, Any] = (
        _EPISODE
        | own
        | {
            "run_id": f"example-{number}",
            "group_id": f"group-{number}",
            "problem_id": f"problem-{number}",
            "problem_kind": kind,
            "sample_index": sample,
            "status": given.status,
            "n_calls": len(given.calls),
        }
    )
    problem: dict[str, Any] = _PROBLEM | {"problem_id": f"problem-{number}", "kind": kind}
    return {
        "problems": [Problem(**problem | given.problem)] if sample == 0 else [],
        "episodes": [Episode(**episode | given.episode)],
        "calls": [Call(**call | {"call_index": n, "call_id": f"c{n}"} | one) for n, one in enumerate(given.calls)],
        "actions": [Action(**action | {"action_index": n} | one) for n, one in enumerate(given.actions)],
        "evidence": [
            Evidence(**own, name=name, value=json.dumps(value), producer=producer, created_at=AT)
            for name, value, producer in facts
        ],
    }


_PROBLEM = {
    "source": "example", "split": "train", "title": "", "prompt": "", "spec": "{}", "licence": "CC0-1.0",
    "allowed_uses": ["training", "evaluation"], "difficulty": 0.5, "oracle_passed": True, "null_failed": True, "created_at": AT,
}  # fmt: skip
_EPISODE = {
    "split": "train", "agent": "example", "backend": "none", "mode": "policy", "purpose": "train", "error": None,
    "session_id": "s", "model_name": "example", "model_version": 1, "n_prompt_tokens": 0, "n_completion_tokens": 0,
    "duration_s": 1.0, "started_at": AT, "ended_at": AT,
}  # fmt: skip
_CALL: dict[str, Any] = {
    "session_id": "s", "parent_call_id": None, "segment": 0, "fork_reason": None, "prompt_token_ids": [],
    "completion_token_ids": [], "logprobs": [], "weight_versions": [], "token_status": "exact", "token_route": "generate",
    "status": "ok", "finish_reason": "stop", "request_messages": "[]", "response_message": "{}", "tools": "[]",
    "sampling": "{}", "template_digest": "d", "engine_version": "0", "latency_s": 0.1, "started_at": AT,
}  # fmt: skip
_ACTION = {
    "call_id": None, "tool": "tool", "arguments": "{}", "observation": "", "is_error": False, "duration_s": 0.1, "started_at": AT,
}  # fmt: skip
