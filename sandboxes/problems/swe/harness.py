"""Runs pytest inside a box. Sent there as text, run with `python3 -c`: imports the standard library and pytest only.

Reads a request from stdin: {"nonce", "paths": [for sys.path], "files": [test files], "only": [node ids] or null,
"trace": whether to tell which lines ran, "statements": whether to tell at which statement a test failed (0.1 s each),
"raw": whether to tell what pytest would have shown of each failure, and of each test as soon as it has ended}.
Writes one JSON line to the real stdout when pytest is done, and exits with pytest's own status. Short lines before it,
[index in "only", mark, milliseconds], are what is known of a run that is stopped; nothing is judged by them.
What tests print goes nowhere, but for the end of it in the text of a failure.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

OUTCOMES = {"passed": "P", "failed": "F", "skipped": "S"}
LONGEST = 400  # characters of a failure's text
MOST = 20  # failures told in full
TEXT = 2_000  # characters of what pytest shows of a failure: its end, where the error is
TEXTS = 200_000  # bytes of JSON of all of them: the controller takes of these what it needs
ENDED = 65_536  # characters about tests that have ended, so that the report always has room


class Recorder:
    """What happened to each test, by node id. A test that failed in any phase or subtest failed."""

    def __init__(self, only: "list[str] | None", *, statements: bool, raw: bool, tell: "Callable[[str], Any]") -> None:
        self.statements = statements
        self.raw = raw
        self.tell = tell
        self.room = {"texts": TEXTS, "ended": ENDED}
        self.texts: dict[str, str] = {}
        self.index = {name: number for number, name in enumerate(only or ())}
        self.only = None if only is None else set(only)
        self.outcomes: dict[str, str] = {}
        self.failures: list[dict[str, str]] = []
        self.seconds: dict[str, float] = {}  # set up, call and tear down together

    def pytest_collection_modifyitems(self, items: "list[Any]") -> None:
        if self.only is not None:
            items[:] = [item for item in items if item.nodeid in self.only]

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._show(report)
            self._fail(report.nodeid, "", str(report.longrepr).strip().rpartition("\n")[2].removeprefix("E").strip())

    def pytest_runtest_logreport(self, report: Any) -> None:
        outcome = OUTCOMES[report.outcome]
        if hasattr(report, "wasxfail"):
            outcome = "X"
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if report.when == "call" or outcome != "P":
            worse = "F" in (outcome, self.outcomes.get(report.nodeid))
            self.outcomes[report.nodeid] = "F" if worse else outcome
        if report.failed:
            self._show(report)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        if self.raw and nodeid in self.index:
            line = json.dumps([self.index[nodeid], self.outcomes.get(nodeid, "-"), self._ms(nodeid)]) + "\n"
            self.room["ended"] -= len(line)
            if self.room["ended"] >= 0:
                self.tell(line)

    def _ms(self, node: str) -> float:
        return round(1000 * self.seconds.get(node, 0.0), 2)

    def _show(self, report: Any) -> None:
        """Keep the end of what pytest would show: the traceback, then what the test printed."""
        if not self.raw or self.room["texts"] <= 0:
            return
        printed = [f"{title}\n{content}" for title, content in report.sections]
        text = "\n".join([str(report.longrepr), *printed]).strip()
        if report.nodeid in self.texts:
            text = f"{self.texts[report.nodeid]}\n{text}"  # it failed again when it was torn down
        self.texts[report.nodeid] = text[-TEXT:].encode(errors="replace").decode()  # JSON is read strictly
        self.room["texts"] -= len(json.dumps(self.texts[report.nodeid]))

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Any:
        result = yield
        if call.excinfo is not None and result.get_result().failed and len(self.failures) < MOST:
            where = [entry for entry in call.excinfo.traceback if str(entry.path) == str(item.path)]
            statement = str(where[-1].statement) if where and self.statements else ""
            self._fail(item.nodeid, statement, call.excinfo.exconly())

    def _fail(self, node: str, statement: str, message: str) -> None:
        if len(self.failures) < MOST:
            self.failures.append({"node": node, "statement": statement[:LONGEST], "message": message[:LONGEST]})


def trace(root: str) -> "dict[str, set[int]]":
    """From now on note which lines below a folder run: path relative to it -> line numbers."""
    seen: dict[str, set[int]] = {}

    def note(frame: Any, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(root):
            return None
        seen.setdefault(name[len(root) :], set()).add(frame.f_lineno)
        return note

    sys.settrace(note)
    return seen


def main() -> None:
    request = json.load(sys.stdin)
    report = os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    sys.path[:0] = request["paths"]
    lines = trace(str(Path.cwd()) + "/") if request["trace"] else {}
    recorder = Recorder(
        request["only"],
        statements=request["statements"],
        raw=request["raw"],
        tell=lambda line: os.write(report, line.encode()),
    )
    here = str(Path.cwd())
    options = ["-c", os.devnull, "--rootdir", here, "--confcutdir", here, "--import-mode=importlib"]
    options += ["--tb=native"]  # the other styles read sources for every failure
    started = time.monotonic()
    status = int(pytest.main([*options, "-q", "-p", "no:cacheprovider", *request["files"]], plugins=[recorder]))
    sys.settrace(None)
    names = request["only"] or sorted(recorder.outcomes)
    answer = {
        "nonce": request["nonce"],
        "status": status,
        "outcomes": "".join(recorder.outcomes.get(name, "-") for name in names),  # in the order of "only"
        "names": None if request["only"] else names,
        "failures": recorder.failures,
        "ms": [recorder._ms(name) for name in names],
        "texts": recorder.texts,
        "lines": {name: sorted(numbers) for name, numbers in lines.items()},
        "duration_s": time.monotonic() - started,
    }
    os.write(report, (json.dumps(answer) + "\n").encode())
    os._exit(status)


if __name__ == "__main__":
    main()
