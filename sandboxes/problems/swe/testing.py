"""One pytest run in a box, as a report the controller can hold against what it expected."""

import json
import math
import posixpath
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, FiniteFloat, ValidationError

from sandboxes.backends.base import WORKDIR, Backend, Box, BoxSpec, Limits

HARNESS = Path(__file__).with_name("harness.py").read_text()
PYTHON = ("python3", "-P", "-s", "-B", "-X", "utf8", "-c", HARNESS)
FIXED = {
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "TZ": "UTC",
    "LC_ALL": "C.UTF-8",
    "HOME": "/tmp",  # noqa: S108 - inside the box
}
LIMITS = Limits(memory_mb=768, output_bytes=1 << 20)


class Failure(BaseModel):
    """A test that failed: the statement in the test file, and what it said."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    node: str
    statement: str
    message: str


class Report(BaseModel):
    """What a run said. `outcomes`: P passed, F failed, S skipped, X expected failure; absent: did not run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    exit_code: int | None  # None: a deadline ended it
    outcomes: dict[str, str] = {}
    failures: list[Failure] = []
    complete: bool = False  # pytest came to its end and reported
    timed_out: bool = False
    duration_s: FiniteFloat = 0.0
    ms: dict[str, FiniteFloat] = {}  # how long each test took, in milliseconds
    lines: dict[str, list[int]] = {}  # where asked for: path -> lines that ran
    texts: dict[str, str] = {}  # where asked for: test, or file that broke off -> the end of what pytest shows
    reached: dict[str, tuple[str, float]] = {}  # of a stopped run: test -> mark and milliseconds; not to judge by

    @property
    def agrees(self) -> bool:
        """Whether the exit status and the report tell the same story."""
        clean = bool(self.outcomes) and "F" not in self.outcomes.values() and not self.failures
        return self.complete and (self.exit_code == 0) == clean

    def passed(self, nodes: Sequence[str]) -> list[str]:
        """Those of these tests that passed; skipped and missing ones did not."""
        return [node for node in nodes if self.outcomes.get(node) == "P"]


def entries(paths: Sequence[str]) -> list[str]:
    """A package's paths as entries of `sys.path` inside a box."""
    return [posixpath.normpath(f"{WORKDIR}/{path}") for path in paths]


async def run_fresh(
    backend: Backend, tree: Mapping[str, bytes], paths: Sequence[str], files: Sequence[str], *,
    only: Sequence[str] | None, timeout_s: float, trace: bool = False, statements: bool = True, raw: bool = False,
) -> Report:  # fmt: skip
    """Run in a box of its own, gone afterwards. SandboxError where the box, not the code in it, failed."""
    box = await backend.start(BoxSpec(files=tree, limits=LIMITS))
    try:
        return await run_in(
            box, paths, files, only=only, timeout_s=timeout_s, trace=trace, statements=statements, raw=raw
        )
    finally:
        await box.close()


async def run_in(
    box: Box,
    paths: Sequence[str],
    files: Sequence[str],
    *,
    only: Sequence[str] | None,
    timeout_s: float,
    trace: bool = False,
    statements: bool = True,
    raw: bool = False,
) -> Report:
    """Run test files (of them only the nodes in `only`, if given) in a box that holds the work tree."""
    nonce = secrets.token_hex(8)
    request = {
        "nonce": nonce,
        "paths": entries(paths),
        "files": list(files),
        "only": None if only is None else list(only),
        "trace": trace,
        "statements": statements,
        "raw": raw,
    }
    done = await box.exec(PYTHON, timeout_s=timeout_s, stdin=json.dumps(request).encode(), env=FIXED)
    if done.timed_out or done.exit_code is None:
        reached = _reached(done.stdout, only or ())
        return Report(exit_code=None, timed_out=True, duration_s=done.duration_s, reached=reached)
    for line in reversed(done.stdout.splitlines()):
        report = _parse(line, nonce, only, done.exit_code)
        if report is not None:
            return report
    return Report(exit_code=done.exit_code, duration_s=done.duration_s)


def _reached(said: bytes, only: Sequence[str]) -> dict[str, tuple[str, float]]:
    """The tests that had ended when a run was stopped."""
    found = {}
    for line in said.splitlines():
        try:
            number, mark, took = json.loads(line)
            if mark in ("P", "F", "S", "X") and math.isfinite(took):
                found[only[number]] = (mark, float(took))
        except (ValueError, TypeError, IndexError, OverflowError, RecursionError):
            continue  # whatever else was written there
    return found


def _parse(line: bytes, nonce: str, only: Sequence[str] | None, exit_code: int) -> Report | None:
    """A report line, or None for anything else."""
    try:
        said = json.loads(line)
        if said["nonce"] != nonce or said["status"] != exit_code:
            return None
        names = said["names"] if only is None else only
        ms = dict(zip(names, said["ms"], strict=True))
        return Report(
            exit_code=exit_code,
            outcomes={name: mark for name, mark in zip(names, said["outcomes"], strict=True) if mark != "-"},
            failures=said["failures"],
            complete=True,
            duration_s=said["duration_s"],
            ms={name: took for name, took in ms.items() if took},
            lines=said["lines"],
            texts=said.get("texts", {}),
        )
    except (ValueError, TypeError, KeyError, ValidationError):
        return None
