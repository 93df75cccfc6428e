"""Boxes without isolation that run nothing: a dict as work tree and scripted replies. For tests and dry runs."""

from collections.abc import Callable, Mapping, Sequence
from posixpath import normpath
from typing import Literal

from sandboxes.backends.base import WORKDIR, Background, BackgroundOutput, BoxSpec, ExecResult, SandboxError

Answer = Callable[[Sequence[str], dict[str, bytes]], ExecResult]


def said(stdout: bytes = b"", *, exit_code: int | None = 0, stderr: bytes = b"") -> ExecResult:
    """The result of a command that said this; exit code None is a command that met its deadline."""
    stopped_by: Literal["deadline"] | None = "deadline" if exit_code is None else None
    return ExecResult(exit_code, stdout, stderr, dropped_bytes=0, stopped_by=stopped_by, duration_s=0.0)


def succeed(argv: Sequence[str], files: dict[str, bytes]) -> ExecResult:
    """The default answer: every command succeeds in silence."""
    return said()


class ScriptedBox:
    """One box. `files` is its work tree, `commands` what was run in it."""

    def __init__(self, spec: BoxSpec, answer: Answer) -> None:
        self.files = dict(spec.files)
        self.commands: list[Sequence[str]] = []
        self.closed = False
        self._background: dict[int, tuple[tuple[str, ...], ExecResult]] = {}
        self._started = 0
        self._answer = answer

    async def exec(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        silence_s: float | None = None,
        cwd: str = WORKDIR,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
    ) -> ExecResult:
        """What the script answers to `argv`; it may change the files, and raise SandboxError as a dying box would."""
        self._check()
        self.commands.append(list(argv))
        return self._answer(argv, self.files)

    async def start(self, argv: Sequence[str], *, cwd: str = WORKDIR, env: Mapping[str, str] | None = None) -> int:
        """A background process that says at once all that the script answers, and runs until it is stopped."""
        self._check()
        self.commands.append(list(argv))
        self._started += 1
        self._background[self._started] = (tuple(argv), self._answer(argv, self.files))
        return self._started

    async def processes(self) -> list[Background]:
        """All that were started and not stopped."""
        self._check()
        return [Background(number, argv, None, 0.0) for number, (argv, _) in self._background.items()]

    async def output(self, number: int) -> BackgroundOutput:
        """What the script answered; nothing the second time."""
        self._check()
        argv, answered = self._process(number)
        self._background[number] = (argv, said())
        return BackgroundOutput(None, answered.stdout, answered.stderr, 0)

    async def stop(self, number: int) -> BackgroundOutput:
        """The last of it."""
        self._check()
        _, answered = self._process(number)
        del self._background[number]
        return BackgroundOutput(-9, answered.stdout, answered.stderr, 0)

    def _process(self, number: int) -> tuple[tuple[str, ...], ExecResult]:
        if number not in self._background:
            raise ValueError(f"there is no background process {number}")
        return self._background[number]

    async def read(self, path: str, *, limit_bytes: int = 1 << 20) -> bytes:
        """A file of the work tree."""
        self._check()
        name = _inside(path)
        if name not in self.files:
            raise FileNotFoundError(path)
        if len(self.files[name]) > limit_bytes:
            raise ValueError(f"{path!r} is over the limit of {limit_bytes} bytes")
        return self.files[name]

    async def write(self, files: Mapping[str, bytes]) -> None:
        """Put files into the work tree."""
        self._check()
        self.files.update({_inside(path): content for path, content in files.items()})

    async def snapshot(self) -> dict[str, bytes]:
        """The work tree."""
        self._check()
        return dict(self.files)

    async def close(self) -> None:
        """End the box."""
        self.closed = True

    def _check(self) -> None:
        if self.closed:
            raise SandboxError("the box is gone: it was closed")


class ScriptedBackend:
    """A backend whose boxes answer by `answer(argv, files)`. `boxes` holds every box it started."""

    name = "scripted"

    def __init__(self, answer: Answer = succeed) -> None:
        self.boxes: list[ScriptedBox] = []
        self._answer = answer

    async def start(self, spec: BoxSpec) -> ScriptedBox:
        """A box with the work tree of `spec`."""
        box = ScriptedBox(spec, self._answer)
        self.boxes.append(box)
        return box


def _inside(path: str) -> str:
    name = path.removeprefix(WORKDIR + "/")
    if not name or name.startswith("/") or normpath(name) != name or name.split("/")[0] == "..":
        raise ValueError(f"{path!r} is not a plain path below {WORKDIR}")
    return name
