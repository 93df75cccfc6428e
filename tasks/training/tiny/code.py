"""Repair traces from the standard library: a window of numbered lines with one bug, and the edit that undoes it.

The bugs are the same kinds as in `swe` problems; the code is Python's own, never that of a package a problem is made of.
"""

import importlib.util
import random
from functools import partial
from pathlib import Path

from sandboxes.problems.swe.mutate import Mutation, mutations
from tasks.training.tiny.traces import Trace, message, system, tool_call, value, word

MODULES = (
    "argparse ast bisect calendar cmd code codecs colorsys configparser contextlib copy csv datetime difflib dis "
    "email.utils filecmp fnmatch fractions ftplib functools getopt glob gzip heapq html.parser http.cookies imaplib "
    "inspect ipaddress json.decoder json.encoder linecache locale mailbox mimetypes netrc numbers optparse os pathlib "
    "pdb pickle pickletools platform plistlib posixpath pprint profile pstats queue quopri random reprlib sched selectors shlex "
    "shutil smtplib socket statistics string stringprep tarfile tempfile textwrap threading tokenize trace traceback types "
    "typing urllib.parse urllib.request uuid warnings wave weakref zipfile zipimport _pydecimal _pyio _strptime"
).split()
KINDS = "arguments arithmetic boolean compare constant guard loop name negated not return slice".split()
EDIT = "change fix patch replace modify".split()
END = "finish done commit end".split()
OTHERS = (("look", "read", "peek"), ("shell", "exec", "sh"), ("check", "verify", "try"))  # never the call that is made
OTHER_ARGUMENTS = ("path, line", "command", "")
ARGUMENTS = (("old", "new", "line", "path"), ("before", "after", "row", "file"), ("find", "put", "number", "name"))
PLACES = (
    "{package}/{module}.py",
    "src/{package}/{module}.py",
    "{package}/__init__.py",
    "{module}.py",
    "lib/{module}.py",
)
OPENINGS = ("Mend the code, then end.", "One line is wrong.", "Correct the source.", "Find the bug and hand it in.", "")
WINDOW = 14


def code_traces(seed: int, per_module: int = 220) -> list[Trace]:
    """Repair traces of every module that this Python has, in a fixed order."""
    rng = random.Random(seed)  # noqa: S311 - invented text, not secrets
    found: list[Trace] = []
    for module in MODULES:
        spec = importlib.util.find_spec(module)
        if spec is None or not spec.origin or not spec.origin.endswith(".py"):
            continue
        source = Path(spec.origin).read_text(encoding="utf-8", errors="replace")
        sites = mutations(source, KINDS)
        lines = source.split("\n")
        chosen = rng.sample(sites, min(per_module, len(sites)))
        found += filter(None, map(partial(repair, rng, module.split(".")[-1], lines), chosen))
    return found


def repair(rng: random.Random, module: str, lines: list[str], bug: Mutation) -> Trace | None:
    """The trace of one bug, or None where its window is too long to read. Package, path and failure are invented."""
    first, shown = window(rng, lines, bug)
    if sum(map(len, shown)) > 700:
        return None
    broken = lines[bug.line - 1]
    shown[bug.line - first] = broken[: bug.column] + bug.new + broken[bug.column + len(bug.old) :]
    edit, end, names = rng.choice(EDIT), rng.choice(END), rng.choice(ARGUMENTS)
    package = word(rng).lower()
    path = rng.choice(PLACES).format(package=package, module=rng.choice((module, word(rng).lower())))
    name = bug.function.rpartition(".")[2]
    question = [f"{package} {path} {bug.function}"]
    if rng.random() < 0.8:
        question.append(f"Fails: assert {name}({value(rng)[:24]}) == {value(rng)[:16]} -> {value(rng)[:24]}")
    question += [f"{number}| {text}" for number, text in enumerate(shown, first)]
    tools = [f"{edit}({', '.join(names)})", f"{end}()"]
    if rng.random() < 0.6:
        tools[1:1] = [f"{rng.choice(n)}({a})" for n, a in zip(OTHERS[1:], OTHER_ARGUMENTS[1:], strict=True)]
        tools.insert(0, f"{rng.choice(OTHERS[0])}({OTHER_ARGUMENTS[0]})")
    values = (bug.new, bug.old, bug.line)  # the file is the one that is shown
    return [
        system(rng.choice(OPENINGS), tools),
        message("user", "\n".join(question)),
        *tool_call(edit, dict(zip(names[:3], values, strict=True))),
        message("tool", "ok"),
        *tool_call(end, {}),
    ]


def window(rng: random.Random, lines: list[str], bug: Mutation) -> tuple[int, list[str]]:
    """At most WINDOW lines of the bug's function around it, at a random offset: the first line's number and the text."""
    size = rng.randint(3, WINDOW)
    first = max(bug.first_line, bug.line - rng.randrange(size))
    last = min(bug.last_line, first + size - 1)
    return first, lines[first - 1 : last]
