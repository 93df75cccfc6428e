"""The world of one python episode: `python` runs code, with state kept between calls; `answer` ends the episode."""

import json
import secrets
from collections.abc import Mapping, Sequence
from fractions import Fraction
from importlib import resources
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lakehouse.records import Problem
from sandboxes.backends.base import Backend, Box, BoxSpec, Limits
from sandboxes.problems.base import EnvironmentFailure, Fact, Observation, ToolCall
from sandboxes.problems.python.answers import final, number, same
from sandboxes.prompts import SHIPPED, Prompts

PRODUCER = "lakeloop python 1"
CALL_S = 30.0  # of a call: the cells that are run again and the new one
OUTPUT = 2000  # characters of an observation
MOST_CELLS = 50
LIMITS = Limits(memory_mb=512, pids=32, workdir_mb=64)
ENV = {"PYTHONHASHSEED": "0"}
PARAMETER = {"python": "code", "answer": "text"}


class Spec(BaseModel):
    """A python problem's `spec`. `cells` is the oracle's code, whose last line of output is the answer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    template: str
    answer: str  # a rational number: "12", "-7/3", "0.25"
    tolerance: float = Field(default=0.0, ge=0, le=0.1)  # relative
    cells: list[str] = []

    @property
    def value(self) -> Fraction:
        return Fraction(self.answer)

    @property
    def expert(self) -> list[ToolCall]:
        return [*(ToolCall("python", {"code": code}) for code in self.cells), ToolCall("answer", {"text": self.answer})]


def read_spec(problem: Problem) -> Spec:
    """The problem's spec; EnvironmentFailure where it is not one of a python problem."""
    try:
        spec = Spec.model_validate(json.loads(problem.spec))
        Fraction(spec.answer)
    except (ValueError, ZeroDivisionError, ValidationError) as error:
        raise EnvironmentFailure(f"{problem.problem_id}: the spec is not a python problem's: {error}") from error
    return spec


def _tool(name: str, description: str) -> Mapping[str, Any]:
    parameter = PARAMETER[name]
    schema = {"type": "object", "properties": {parameter: {"type": "string"}}, "required": [parameter]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOLS = (
    _tool("python", "Run Python code. The value of a last expression is shown, like what is printed."),
    _tool("answer", "Give the answer, a number."),
)


class PythonEnvironment:
    """`base.Environment`, and `base.Listener` for models that end with their answer in plain text.

    The box is started with the first call of `python`. `cells` is what ran to its end: the state.
    """

    tools: Sequence[Mapping[str, Any]] = TOOLS

    def __init__(self, problem: Problem, spec: Spec, backend: Backend, prompts: Prompts = SHIPPED) -> None:
        self.backend_name = backend.name
        self.cells: list[str] = []
        self.given: str | None = None
        self._failed = 0
        self._timed_out = 0
        self._prompts = prompts.of(problem)
        self._spec = spec
        self._backend = backend
        self._box: Box | None = None

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]:
        return self._prompts.messages("python", self.tools)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Observation:
        if name not in PARAMETER:
            return Observation(f"no tool {name[:40]!r}; there are python and answer", is_error=True)
        parameter = PARAMETER[name]
        value = arguments.get(parameter)
        if not isinstance(value, str) or set(arguments) != {parameter}:
            return Observation(f'{name} takes {{"{parameter}": text}}', is_error=True)
        if name == "python":
            return await self._run(value)
        self.given = value
        return Observation("answer taken", done=True)

    def hear(self, text: str) -> None:
        """An answer in plain text counts where it is marked: \\boxed{...} or `#### ...`."""
        if final(text) != text.strip():
            self.given = text

    async def grade(self) -> Sequence[Fact]:
        await self.close()
        value = None if self.given is None else number(self.given)
        answer = {
            "given": None if self.given is None else self.given[-1000:],
            "value": None if value is None else str(value),
            "expected": self._spec.answer,
            "match": same(value, self._spec.value, self._spec.tolerance),
        }
        tool = {"cells": len(self.cells), "failed": self._failed, "timed_out": self._timed_out}
        return [Fact("answer", answer, PRODUCER), Fact("python", tool, PRODUCER)]

    async def close(self) -> None:
        box, self._box = self._box, None
        if box is not None:
            await box.close()

    async def _run(self, code: str) -> Observation:
        if len(self.cells) >= MOST_CELLS:
            return Observation(f"{MOST_CELLS} calls of python are the most: answer now", is_error=True)
        if self._box is None:
            self._box = await self._backend.start(BoxSpec(limits=LIMITS))
        done = secrets.token_hex(8)
        told = json.dumps({"cells": [*self.cells, code], "done": done}).encode()
        ran = await self._box.exec(["python3", "-s", "-c", _interpreter()], timeout_s=CALL_S, stdin=told, env=ENV)
        complaint, ended, _ = ran.stderr.decode(errors="replace").rpartition(done)
        output = ran.stdout.decode(errors="replace") + (complaint if ended else ran.stderr.decode(errors="replace"))
        if ran.timed_out:
            self._timed_out += 1
            return Observation(_cut(f"stopped after {CALL_S:.0f} s; the state is as before\n{output}"), is_error=True)
        if not ended:
            self._failed += 1
            said = f"the interpreter ended with status {ran.exit_code}; the state is as before\n{output}"
            return Observation(_cut(said), is_error=True)
        self.cells.append(code)
        self._failed += ran.exit_code != 0
        return Observation(_cut(output) or "no output", is_error=ran.exit_code != 0)


def _interpreter() -> str:
    return resources.files("sandboxes.problems.python").joinpath("interpreter.py").read_text(encoding="utf-8")


def _cut(output: str) -> str:
    """At most OUTPUT characters: head and tail."""
    output = output.strip("\n")
    if len(output) <= OUTPUT:
        return output
    half = OUTPUT // 2 - 20
    return f"{output[:half]}\n[{len(output) - 2 * half} characters left out]\n{output[-half:]}"
