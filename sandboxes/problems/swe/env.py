"""The world of one swe episode: `view`, `edit`, `run`, `test`, `submit` on a package's work tree.

The controller holds the tree. A box is started only when something must run, and the tree is read back afterwards.
"""

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from lakehouse.records import Problem, digest, dumps
from sandboxes.backends.base import WORKDIR, Backend, Box, BoxSpec
from sandboxes.backends.trees import Tree
from sandboxes.problems.base import Fact, Observation
from sandboxes.problems.honey import Honey
from sandboxes.problems.swe import testing, text
from sandboxes.problems.swe.grade import grade
from sandboxes.problems.swe.patch import between
from sandboxes.problems.swe.spec import Spec
from sandboxes.prompts import SHIPPED, Prompts

OUTPUT = 2000  # characters of an observation
COMMAND_S = 60.0
TEST_S = 120.0
AROUND = 10  # lines that `view` shows to each side
ARGUMENTS: dict[str, dict[str, type]] = {
    "view": {"path": str, "line": int},
    "edit": {"old": str, "new": str, "line": int, "path": str},
    "run": {"command": str},
    "test": {},
    "submit": {},
}
OPTIONAL = {("edit", "path")}


class SweEnvironment:
    """`base.Environment`. `tree` is what the agent has now, `start` what it was given: path -> content."""

    def __init__(
        self,
        problem: Problem,
        spec: Spec,
        start: Mapping[str, bytes],
        backend: Backend,
        prompts: Prompts = SHIPPED,
    ) -> None:
        self.backend_name = backend.name
        self._problem = problem
        self._prompts = prompts.of(problem)
        self._spec = spec
        self._start = start
        self._backend = backend
        self._box: Box | None = None
        self._in_box: dict[str, bytes] = {}  # the tree as the box has it
        self._honey = Honey()
        self.tree = Tree.of(start)
        self._shown = spec.shown  # the file that `edit` changes where it names none

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]:
        return self._prompts.messages("swe", text.TOOLS)

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]:
        return text.TOOLS

    @property
    def image(self) -> str | None:
        """What its boxes run on; None: the standard image."""
        return self._spec.layout.image

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Observation:
        self._honey.said(dumps(arguments))
        wrong = _wrong(name, arguments)
        if wrong:
            return Observation(wrong, is_error=True)
        match name:
            case "view":
                return self._view(arguments["path"], arguments["line"])
            case "edit":
                return self._edit(**arguments)
            case "run":
                return await self._run(arguments["command"])
            case "test":
                return await self._test()
            case _:
                return Observation("submitted", done=True)

    async def grade(self) -> Sequence[Fact]:
        await self.close()
        patch = between(self._start, self.tree, self._spec.layout)
        edition = digest(self._problem.problem_id, self._problem.spec)  # another one may ask for other tests
        measured = await grade(edition, self._spec, patch, self._backend)
        return [*measured, *self._honey.facts]

    async def close(self) -> None:
        box, self._box = self._box, None
        if box is not None:
            await box.close()

    def _file(self, path: str) -> tuple[str, str] | Observation:
        """A file's normal path and its text, or what is wrong with the path."""
        name = str(PurePosixPath(path.removeprefix(WORKDIR + "/")))
        if name not in self.tree:
            near = [known for known in self.tree if PurePosixPath(known).name == PurePosixPath(name).name]
            return Observation(f"no file {text.shorten(path, 80)}" + (f"; there is {near[0]}" if near else ""), True)
        try:
            return name, self.tree[name].decode()
        except UnicodeDecodeError:
            return Observation(f"{name} is not text", is_error=True)

    def _view(self, path: str, line: int) -> Observation:
        found = self._file(path)
        if isinstance(found, Observation):
            return found
        lines = found[1].split("\n")
        if not 1 <= line <= len(lines):
            return Observation(f"{found[0]} has {len(lines)} lines", is_error=True)
        self._shown = found[0]
        first = max(1, line - AROUND)
        shown = list(enumerate(lines[first - 1 : line + AROUND - 1], start=first))
        return Observation(_cut(text.numbered(shown)))

    def _edit(self, old: str, new: str, line: int, path: str | None = None) -> Observation:
        path = path or self._shown
        if path is None:
            return Observation("no file is shown: view one, or give its path", is_error=True)
        found = self._file(path)
        if isinstance(found, Observation):
            return found
        name, source = found
        lines = source.split("\n")
        if not 1 <= line <= len(lines):
            return Observation(f"{name} has {len(lines)} lines", is_error=True)
        if not old or old == new:
            return Observation("old is empty" if not old else "old and new are the same", is_error=True)
        start = sum(len(above) + 1 for above in lines[: line - 1])
        ends = start + len(lines[line - 1])
        places = [at for at in range(start, ends + 1) if source.startswith(old, at)]
        if len(places) != 1:
            said = f"old occurs {len(places)} times on line {line}, which is: {lines[line - 1]}"
            return Observation(_cut(said), is_error=True)
        self.tree[name] = (source[: places[0]] + new + source[places[0] + len(old) :]).encode(errors="replace")
        last = line + new.count("\n")
        changed = list(enumerate(self.tree[name].decode().split("\n")[line - 1 : last], start=line))
        return Observation(_cut(text.numbered(changed)))

    async def _run(self, command: str) -> Observation:
        box = await self._ready()
        env = testing.FIXED | {"PYTHONPATH": ":".join(testing.entries(self._spec.layout.paths))}
        done = await box.exec(["sh", "-c", command], timeout_s=COMMAND_S, env=env)
        self._honey.showed(done.stdout + done.stderr)
        if refused := await self._read_back(box):
            return refused
        output = (done.stdout + done.stderr).decode(errors="replace")
        if done.timed_out:
            return Observation(_cut(f"stopped after {COMMAND_S:.0f} s\n{output}"), is_error=True)
        return Observation(_cut(f"exit {done.exit_code}\n{output}"))

    async def _test(self) -> Observation:
        box = await self._ready()
        layout = self._spec.layout
        files = [path for path in self.tree if layout.is_test(path)]
        report = await testing.run_in(box, layout.paths, files, only=None, timeout_s=TEST_S)
        if refused := await self._read_back(box):
            return refused
        if report.timed_out:
            return Observation(f"the tests did not end within {TEST_S:.0f} s", is_error=True)
        if not report.complete:
            return Observation(f"the test run broke off with exit status {report.exit_code}", is_error=True)
        marks = list(report.outcomes.values())
        failed = max(marks.count("F"), len({failure.node for failure in report.failures}))
        first = [f"{f.node}: {text.behaviour(f.statement, f.message)}" for f in report.failures[:3]]
        return Observation(_cut("\n".join([f"{failed} failed, {marks.count('P')} passed", *first])))

    async def _ready(self) -> Box:
        """The box, holding the tree as it is now. Only what differs from its own tree is written."""
        if self._box is None:
            self._box = await self._backend.start(
                BoxSpec(files={**self._honey.files, **self.tree}, limits=testing.LIMITS)
            )
            self._in_box = dict(self.tree)
        changed = {path: content for path, content in self.tree.items() if self._in_box.get(path) != content}
        if changed:
            await self._box.write(changed)
            self._in_box |= changed
        return self._box

    async def _read_back(self, box: Box) -> Observation | None:
        """Take over the tree as a command left it. Where the box refuses to give one so large, the command is as if it had
        not been: what an agent does to its tree may cost it the reward and never the grading."""
        try:
            self._in_box = self._honey.without(await box.snapshot())
        except ValueError as error:
            await self.close()  # the next command has a box with the tree as it was
            return Observation(_cut(f"{error}: this command's changes are undone"), is_error=True)
        self.tree = Tree.of(self._in_box)
        return None


def _wrong(name: str, arguments: Mapping[str, Any]) -> str:
    """What is wrong with a call, or nothing."""
    if name not in ARGUMENTS:
        return f"no tool {text.shorten(name, 40)}; there are {', '.join(ARGUMENTS)}"
    wanted = ARGUMENTS[name]
    needed = {key for key in wanted if (name, key) not in OPTIONAL}
    named = needed <= set(arguments) <= set(wanted)
    fits = named and all(type(value) is wanted[key] for key, value in arguments.items())
    takes = ", ".join(f"{key}: {'integer' if kind is int else 'string'}" for key, kind in wanted.items())
    return "" if fits else f"{name} takes ({takes})"


def _cut(output: str) -> str:
    """At most OUTPUT characters: head and tail."""
    if len(output) <= OUTPUT:
        return output
    half = OUTPUT // 2 - 20
    return f"{output[:half]}\n[{len(output) - 2 * half} characters left out]\n{output[-half:]}"
