"""From a candidate to a problem: its trees are stored, its tests run, its solution becomes the oracle's calls, both gates."""

import base64
import json
import posixpath
import shlex
from collections.abc import Mapping

from lakehouse.records import Problem, now
from sandboxes.backends.base import Backend
from sandboxes.problems.foreign import Terms
from sandboxes.problems.swe import pairs, repositories, spec, text, validate
from sandboxes.problems.swe.drafts import behaviour
from sandboxes.problems.swe.importing.candidate import Candidate
from sandboxes.problems.swe.kind import KIND
from sandboxes.problems.swe.packages import PACKAGES, Package
from sandboxes.problems.swe.spec import Edit, Spec
from sandboxes.problems.swe.validate import Gold, Rejected, Symptom
from sandboxes.problems.swe.within import within

LONGEST_ADDED = 60_000  # bytes of a file that the solution adds: an argument of a command holds 128 KiB


async def admit(candidate: Candidate, backend: Backend, terms: Terms) -> Problem:
    """The problem, validated: three runs of the solution, two without it, both gates. Rejected says what did not hold."""
    if candidate.layout.name in PACKAGES:
        raise Rejected(f"{candidate.layout.name} is the name of a package that is here already: rename the repository")
    try:
        version, digest = repositories.keep(candidate.layout, candidate.label, candidate.before)
        tests_version, _ = repositories.keep(candidate.layout, f"{candidate.label}.after", candidate.after)
    except ValueError as error:
        raise Rejected(str(error)) from error
    package = candidate.layout.package({version: digest})
    commands, edits = oracle(candidate.before, candidate.after, package)
    box = within(backend, package.image)
    gold = wanted(candidate, await validate.gold(box, package, tests_version, candidate.test_files, traced=False))
    judged = {path: content for path, content in candidate.before.items() if package.is_source(path)}
    judged |= {path: content for path, content in candidate.after.items() if not package.is_source(path)}
    symptom = await _symptom(candidate, box, package, judged, gold)
    duration_s = spec.learn(package.name, tests_version, gold.tests, symptom.duration_s)
    made = Spec(
        package=package.name,
        version=version,
        sha256=digest,
        tests_version=tests_version,
        hint=0,
        bug=None,
        repair=tuple(edits),
        test_files=symptom.test_files,
        fail_to_pass=symptom.fail_to_pass,
        duration_s=duration_s,
        commands=tuple(commands),
        metadata=json.loads(json.dumps(dict(candidate.metadata), default=str)),
    )
    problem = Problem(
        problem_id=f"swe/{terms.name}/{candidate.name}",
        kind="swe",
        source=f"{package.name}@{candidate.label}",
        split=terms.split,
        title=text.shorten(candidate.statement, 100) or f"{package.name}: {candidate.name}",
        prompt=candidate.statement or text.prompt(package.name, behaviour(symptom.failures), hint=0),
        spec=made.dump(),
        licence=terms.licence,
        allowed_uses=list(terms.allowed_uses),
        difficulty=candidate.difficulty,
        oracle_passed=False,
        null_failed=False,
        created_at=now(),
    )
    await validate.pass_gates(backend, KIND, problem)
    return problem.model_copy(update={"oracle_passed": True, "null_failed": True})


def wanted(candidate: Candidate, gold: Gold) -> Gold:
    """Of the tests that pass after the repair, those the candidate names. Rejected where one that it must repair does not pass."""
    if candidate.fail_to_pass is not None:
        missing = [node for node in candidate.fail_to_pass if node not in gold.all]
        if missing:
            raise Rejected(
                f"{len(missing)} FAIL_TO_PASS tests do not pass every time with the solution, such as {missing[0]}: "
                "they are flaky, misnamed, or need what the box has not"
            )
        named = {*candidate.fail_to_pass, *(candidate.pass_to_pass or ())}
        keep = [node for node in gold.all if node in named]
    elif candidate.passing is not None:
        keep = [node for node in gold.all if ".".join(node.split("::")[1:]) in candidate.passing]
    else:
        keep = gold.all
    if not keep:
        raise Rejected("none of its tests passes with the solution")
    tests: dict[str, list[str]] = {}
    for node in keep:
        tests.setdefault(node.partition("::")[0], []).append(node)
    return Gold(tests, gold.lines, gold.duration_s)


async def _symptom(
    candidate: Candidate, backend: Backend, package: Package, tree: Mapping[str, bytes], gold: Gold
) -> Symptom:
    """What fails without the solution, in two runs, and that it is what the candidate says."""
    failing, _ = await validate.failures(backend, package, tree, gold, list(gold.tests))
    again, second = await validate.failures(backend, package, tree, gold, list(gold.tests))
    if failing != again:
        raise Rejected("two runs differ")
    if candidate.fail_to_pass is not None:
        passing = sorted({*candidate.fail_to_pass} - {*failing})
        if passing:
            raise Rejected(f"a FAIL_TO_PASS test passes without the solution: {passing[0]}")
        unsaid = sorted({*failing} - {*candidate.fail_to_pass})
        if unsaid:
            raise Rejected(f"a PASS_TO_PASS test fails without the solution: {unsaid[0]}")
    return Symptom(tuple(failing), tuple(gold.tests), tuple(second.failures), round(second.duration_s, 3))


def oracle(before: Mapping[str, bytes], after: Mapping[str, bytes], package: Package) -> tuple[list[str], list[Edit]]:
    """The calls that turn one tree's sources into the other's: commands for whole files, edits for the rest."""
    commands: list[str] = []
    edits: list[Edit] = []
    for path in sorted(path for path in {*before, *after} if package.is_source(path)):
        old, new = before.get(path), after.get(path)
        if old == new:
            continue
        if new is None:
            commands.append(f"rm {shlex.quote(path)}")
        elif old is None or not old.strip() or not (_is_text(old) and _is_text(new)):
            commands.append(_written(path, new))
        else:
            edits += pairs.hunks(path, old.decode(), new.decode())
    if not commands and not edits:
        raise Rejected("the solution changes no source file")
    return commands, edits


def _written(path: str, content: bytes) -> str:
    """A command that writes a whole file."""
    if len(content) > LONGEST_ADDED:
        raise Rejected(f"the solution adds a file of more than {LONGEST_ADDED // 1000} kB: {path}")
    folder = shlex.quote(posixpath.dirname(path) or ".")
    return f"mkdir -p {folder} && echo {base64.b64encode(content).decode()} | base64 -d > {shlex.quote(path)}"


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
