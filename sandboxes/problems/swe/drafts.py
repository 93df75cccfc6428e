"""From a bug to a problem: which mutations to try, and how a validated one is told."""

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from lakehouse.records import Problem, digest, now
from sandboxes.problems.swe import text
from sandboxes.problems.swe.mutate import apply, mutations
from sandboxes.problems.swe.packages import Package
from sandboxes.problems.swe.sources import pristine
from sandboxes.problems.swe.spec import Bug, Edit, Spec, read_spec
from sandboxes.problems.swe.testing import Failure
from sandboxes.problems.swe.validate import Symptom

PER_FUNCTION = 3  # problems in one function
LONGEST_LINE = 140  # characters of the mutated line
# What these remove from the text cannot be read off the line that is left.
LOSSY = ("return", "guard")
DIFFICULTY = {4: 0.1, 3: 0.4, 2: 0.5, 1: 0.6, 0: 0.8}  # by hint
LONGEST_PIECE = 16  # characters of `old` and of `new` where the faulty line is shown alone
MOST_SITES = 2  # where a line could be wrong, for it to be shown alone
PAIR_DIFFICULTY = 0.9


def candidates(package: Package, seed: int, ran: Mapping[str, Sequence[int]]) -> Iterator[Bug]:
    """Bugs in the lines that a package's tests run, in a fixed random order that alternates between kinds and between files."""
    draw = random.Random(f"{seed} {package.name} {package.version}")  # noqa: S311 - a sample, not a secret
    kinds: dict[tuple[str, str], list[Bug]] = defaultdict(list)
    for path, content in pristine(package.name, package.version).items():
        if not package.may_break(path):
            continue
        source = content.decode()
        lines, reached = source.split("\n"), set(ran.get(path, ()))
        for found in mutations(source):
            if found.line in reached and len(lines[found.line - 1]) <= LONGEST_LINE:
                kinds[found.kind, path].append(Bug(path=path, **vars(found)))
    for bugs in kinds.values():
        draw.shuffle(bugs)
    order = sorted(kinds)
    draw.shuffle(order)
    while order:
        for key in list(order):
            yield kinds[key].pop()
            if not kinds[key]:
                order.remove(key)


def broken(package: Package, bug: Bug) -> dict[str, bytes]:
    """The package's tree with the bug in it."""
    tree = dict(pristine(package.name, package.version))
    tree[bug.path] = apply(tree[bug.path].decode(), bug.mutation).encode()
    return tree


class Spread:
    """Keeps the accepted bugs of a package apart: one per line, few per function."""

    def __init__(self) -> None:
        self._functions: Counter[tuple[str, str]] = Counter()
        self._lines: set[tuple[str, int]] = set()

    def room(self, bug: Bug) -> bool:
        crowded = self._functions[bug.path, bug.function] >= PER_FUNCTION
        return not crowded and (bug.path, bug.line) not in self._lines

    def add(self, bug: Bug) -> None:
        self._functions[bug.path, bug.function] += 1
        self._lines.add((bug.path, bug.line))


def procedural(package: Package, bug: Bug, symptom: Symptom, *, hint: int) -> Problem:
    """A problem with one mutation; the gates have not been tried yet."""
    spec = Spec(
        package=package.name,
        version=package.version,
        sha256=package.sha256[package.version],
        tests_version=package.version,
        hint=hint,
        bug=bug,
        repair=(Edit(path=bug.path, line=bug.line, old=bug.new, new=bug.old),),
        test_files=symptom.test_files,
        fail_to_pass=symptom.fail_to_pass,
        duration_s=symptom.duration_s,
    )
    told = behaviour(symptom.failures)
    head = text.prompt(package.name, told, hint=min(hint, 2), path=bug.path, function=bug.function)
    source = spec.broken()[bug.path].decode()
    identity = digest(bug.model_dump_json())[:8]
    lines = text.window(
        source,
        bug.line,
        first=bug.first_line,
        last=bug.last_line,
        seed=identity,
        budget=text.BUDGET - len(text.SYSTEM) - len(head) - 1,
    )
    prompt = text.prompt(package.name, told, hint=hint, path=bug.path, function=bug.function, lines=lines)
    name = bug.function.rpartition(".")[2].strip("_")
    return _problem(package, spec, f"{name}-{identity}", prompt, DIFFICULTY[hint] + (0.1 if bug.kind in LOSSY else 0.0))


def pointed(problem: Problem) -> Problem | None:
    """The same bug, tests and oracle with the faulty line alone (hint 4), under an id of its own.

    None where that line leaves too much open: what is missing is not in it, it could be wrong in many places, or the
    repair is long.
    """
    spec = read_spec(problem)
    bug = spec.bug
    if bug is None or bug.kind in LOSSY or max(len(bug.old), len(bug.new)) > LONGEST_PIECE:
        return None
    source = spec.broken()[bug.path].decode()
    sites = {(m.column, m.kind) for m in mutations(source) if m.line == bug.line and m.kind not in LOSSY}
    if len(sites) > MOST_SITES:
        return None
    told, line = problem.prompt.split("\n")[1], source.split("\n")[bug.line - 1]
    prompt = text.prompt(spec.package, told, hint=4, path=bug.path, function=bug.function, lines=[(bug.line, line)])
    changed = {
        "problem_id": f"{problem.problem_id}-line",
        "prompt": prompt,
        "spec": spec.model_copy(update={"hint": 4}).model_dump_json(),
        "difficulty": DIFFICULTY[4],
    }
    return problem.model_copy(update=changed)


def pair(package: Package, old: str, new: str, repair: Sequence[Edit], symptom: Symptom, sentence: str) -> Problem:
    """A problem between two releases: the earlier one's source, the later one's tests."""
    spec = Spec(
        package=package.name,
        version=old,
        sha256=package.sha256[old],
        tests_version=new,
        hint=1,
        bug=None,
        repair=tuple(repair),
        test_files=symptom.test_files,
        fail_to_pass=symptom.fail_to_pass,
        duration_s=symptom.duration_s,
    )
    paths = sorted({edit.path for edit in repair})
    told = [sentence, *dict.fromkeys(_told(failure) for failure in symptom.failures[:3])]
    prompt = text.prompt(package.name, "\n".join(told), hint=1, path=", ".join(paths))
    return _problem(package, spec, f"{old}-to-{new}", prompt, PAIR_DIFFICULTY)


def behaviour(failures: Sequence[Failure]) -> str:
    """One line from the failure that is told shortest."""
    return min((_told(failure) for failure in failures), key=lambda line: (len(line) < 20, len(line), line))


def _told(failure: Failure) -> str:
    """What a test expected and what it got, without its name."""
    message = failure.message.strip().partition("\n")[0]
    for prefix in ("AssertionError: assert ", "AssertionError: ", "assert "):
        message = message.removeprefix(prefix)
    statement = " ".join(failure.statement.split())
    return text.behaviour("" if statement == f"assert {message}" else statement, message)


def _problem(package: Package, spec: Spec, name: str, prompt: str, difficulty: float) -> Problem:
    what = f"a bug in {spec.bug.function}" if spec.bug else f"what {spec.tests_version} changed"
    return Problem(
        problem_id=f"swe/{package.name}/{name}",
        kind="swe",
        source=f"{package.name}=={spec.version}",
        split=package.split,
        title=f"{package.name} {spec.version}: {what}",
        prompt=prompt,
        spec=spec.model_dump_json(),
        licence=package.licence,
        allowed_uses=["training", "evaluation"],
        difficulty=round(difficulty, 2),
        oracle_passed=False,
        null_failed=False,
        created_at=now(),
    )
