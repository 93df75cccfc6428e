"""The world of one terminal episode: `bash` in a box, `submit`. The tests run in a fresh box with a copy of the work tree."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from lakehouse.records import Problem
from sandboxes.backends.base import WORKDIR, Backend, Box, BoxSpec, ExecResult, Limits
from sandboxes.problems.base import EnvironmentFailure, Fact, Observation
from sandboxes.problems.terminal.spec import OURS, TESTS, VERIFIER, Spec, unpacked
from sandboxes.prompts import SHIPPED, Prompts

PRODUCER = "lakeloop terminal 1"
OUTPUT = 4000  # characters of an observation
COMMAND_S = 120.0
SETUP_S = 120.0
PARAMETERS = {"bash": ("command",), "submit": ()}
LIMITS = Limits(
    memory_mb=1024, pids=128, workdir_mb=256, lease_s=3600.0
)  # the lease of the gates, which are in no episode
_COUNTED = re.compile(r"(\d+) (passed|failed|errors?|skipped)")


def _tool(name: str, description: str) -> Mapping[str, Any]:
    properties = {parameter: {"type": "string"} for parameter in PARAMETERS[name]}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOLS = (_tool("bash", "Run a command."), _tool("submit", "The task is done."))


class TerminalEnvironment:
    """`base.Environment`. The box is there from the beginning: its setup is the problem's, not the model's."""

    tools: Sequence[Mapping[str, Any]] = TOOLS

    def __init__(self, problem: Problem, spec: Spec, backend: Backend, prompts: Prompts = SHIPPED) -> None:
        self.backend_name = backend.name
        self._prompts = prompts.of(problem)
        self._spec = spec
        self._backend = backend
        self._box: Box | None = None
        self._commands = 0

    async def begin(self) -> None:
        """The box, set up. EnvironmentFailure where a line of the setup fails."""
        self._box = await self._start(unpacked(self._spec.files, self._spec))
        lines = [self._spec.moved(line) for line in self._spec.setup]
        if self._spec.image and self._spec.workdir not in ("/", WORKDIR):
            lines.insert(0, f"if [ -d {self._spec.workdir} ]; then cp -a {self._spec.workdir}/. {WORKDIR}/; fi")
        for line in lines:
            ran = await self._shell(self._box, line, SETUP_S)
            if ran.exit_code != 0:
                raise EnvironmentFailure(f"the setup {line!r} ended with {ran.exit_code}: {_text(ran)[-500:]}")

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]:
        return self._prompts.messages("terminal", self.tools)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Observation:
        wanted = PARAMETERS.get(name)
        if wanted is None:
            return Observation(f"no tool {name[:40]!r}; there are bash and submit", is_error=True)
        if set(arguments) != set(wanted) or not all(isinstance(arguments[key], str) for key in wanted):
            return Observation(f"{name} takes ({', '.join(f'{key}: string' for key in wanted)})", is_error=True)
        if name == "submit":
            return Observation("submitted", done=True)
        assert self._box is not None
        self._commands += 1
        ran = await self._shell(self._box, arguments["command"], COMMAND_S)
        if ran.timed_out:
            return Observation(_cut(f"stopped after {COMMAND_S:.0f} s\n{_text(ran)}"), is_error=True)
        return Observation(_cut(f"exit {ran.exit_code}\n{_text(ran)}"), is_error=ran.exit_code != 0)

    async def grade(self) -> Sequence[Fact]:
        """The tests on a copy of the tree, with their own files as they were imported, where no process of the agent runs."""
        assert self._box is not None
        commands = Fact("terminal", {"commands": self._commands}, PRODUCER)
        try:
            tree = await self._box.snapshot()
        except ValueError as error:  # the agent made it too large to be taken over: that is no way out of a grade
            refused: dict[str, Any] = {
                "reward": 0.0,
                "exit_code": None,
                "timed_out": False,
                "output": str(error),
                "tests": {},
            }
            return [Fact("verifier", refused, PRODUCER), commands]
        finally:
            await self.close()
        own = {path: content for path, content in tree.items() if path.split("/")[0] != OURS}
        tests = unpacked(self._spec.tests, self._spec, below=TESTS)
        box = await self._start({**own, **tests, f"{VERIFIER}/.here": b""})
        try:
            folder = f"{WORKDIR}/{TESTS}"
            command = [f"{folder}/{word}" if word in self._spec.tests else word for word in self._spec.grader]
            env = {"TEST_DIR": folder, "T_BENCH_TASK_DIR": WORKDIR}
            ran = await box.exec(command, timeout_s=self._spec.verifier_s, env=env)
            reward = await _reward(box, ran, self._spec)
        finally:
            await box.close()
        verifier = {
            "reward": reward,
            "exit_code": ran.exit_code,
            "timed_out": ran.timed_out,
            "output": _cut(_text(ran)),
            "tests": {word: int(count) for count, word in _COUNTED.findall(_text(ran))},
        }
        return [Fact("verifier", verifier, PRODUCER), commands]

    async def close(self) -> None:
        box, self._box = self._box, None
        if box is not None:
            await box.close()

    async def _start(self, files: Mapping[str, bytes]) -> Box:
        return await self._backend.start(
            BoxSpec(files=files, image=self._spec.image, env=self._spec.env, limits=LIMITS)
        )

    async def _shell(self, box: Box, command: str, timeout_s: float) -> ExecResult:
        """A command of any length: it goes to the shell's standard input by a file, so that it may itself read nothing."""
        return await box.exec(
            ["bash", "-c", 'eval "$(cat)" < /dev/null'], timeout_s=timeout_s, stdin=command.encode(errors="replace")
        )


async def _reward(box: Box, ran: ExecResult, spec: Spec) -> float | None:
    """What the tests say: Harbor's reward file, else whether they ended well. None where they said nothing."""
    if spec.grader[0] == "bash" and spec.form == "harbor":
        for name in ("reward.txt", "reward.json"):
            try:
                text = (await box.read(f"{VERIFIER}/{name}", limit_bytes=1 << 16)).decode(errors="replace").strip()
                found = float(json.loads(text)["reward"] if name.endswith("json") else text)
            except (FileNotFoundError, ValueError, KeyError, TypeError):
                continue
            if math.isfinite(found):
                return found
        return None
    if ran.timed_out:
        return None
    return float(ran.exit_code == 0 and "passed" in _text(ran))


def _text(ran: ExecResult) -> str:
    return (ran.stdout + ran.stderr).decode(errors="replace")


def _cut(output: str) -> str:
    """At most OUTPUT characters: head and tail."""
    if len(output) <= OUTPUT:
        return output
    half = OUTPUT // 2 - 20
    return f"{output[:half]}\n[{len(output) - 2 * half} characters left out]\n{output[-half:]}"
