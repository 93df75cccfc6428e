"""From a bug to a problem: which mutations to try, and how a validated one is told."""

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest

from lakehouse.records import Problem, digest, now
from sandboxes.problems.swe import text
from sandboxes.problems.swe.mutate import mutations
from sandboxes.problems.swe.packages import Package
from sandboxes.problems.swe.sites import KINDS
from sandboxes.problems.swe.sources import pristine
from sandboxes.problems.swe.spec import Bug, Edit, Spec, read_spec
from sandboxes.problems.swe.testing import Failure
from sandboxes.problems.swe.validate import Rejected, Symptom

PER_FUNCTION = 3  # problems in one function
LONGEST_LINE = 140  # characters of the mutated line
# What these remove from the text cannot be read off the line that is left.
LOSSY = ("return", "guard", "statement", "raise", "keyword", "conversion", "early")
OPEN = (*LOSSY, "variable")  # nor these where nothing but the line is shown
READABLE = tuple(kind for kind in KINDS if kind not in OPEN)
DIFFICULTY = {4: 0.1, 3: 0.4, 2: 0.5, 1: 0.6, 0: 0.8}  # by hint
LONGEST_PIECE = 16  # characters of `old` and of `new` where the faulty line is shown alone
MOST_SITES = 2  # where a line could be wrong, for it to be shown alone
PAIR_DIFFICULTY = 0.9
POINTED = 4  # the hint that shows the faulty line alone
SITES = (2, 2, 3)  # bugs in a combination, in turn
PER_BUG = 2  # combinations that one bug is in
COMBINATIONS = 200  # drawn per package at most


def candidates(package: Package, seed: int, ran: Mapping[str, Sequence[int]], seen: Counter[str]) -> Iterator[Bug]:
    """Bugs in the lines that a package's tests run, in a fixed random order that alternates between kinds and between files.

    Kinds come first that were `seen` least.
    """
    draw = _draw(seed, package)
    found: dict[str, dict[str, list[Bug]]] = defaultdict(lambda: defaultdict(list))  # by kind, then by file
    for path, content in pristine(package.name, package.version).items():
        if not package.may_break(path):
            continue
        source = content.decode()
        lines, reached = source.split("\n"), set(ran.get(path, ()))
        for mutation in mutations(source):
            if mutation.line in reached and len(lines[mutation.line - 1]) <= LONGEST_LINE:
                found[mutation.kind][path].append(Bug(path=path, **vars(mutation)))
    kinds = {}
    for kind, files in found.items():
        for bugs in files.values():
            draw.shuffle(bugs)
        kinds[kind] = list(_alternating(list(files.values())))
    order = sorted(kinds)
    draw.shuffle(order)
    order.sort(key=lambda kind: seen[kind])
    yield from _alternating([kinds[kind] for kind in order])


def combinations(package: Package, seed: int, singles: Sequence[Problem]) -> Iterator[tuple[Problem, ...]]:
    """Two or three validated problems of a package, each with one bug in a function of its own, in a fixed random order."""
    draw = _draw(seed, package)
    pool = sorted(singles, key=lambda problem: problem.problem_id)
    seen: set[tuple[str, ...]] = set()
    for number in range(COMBINATIONS):
        chosen = tuple(draw.sample(pool, min(len(pool), SITES[number % len(SITES)])))
        bugs = [read_spec(problem).bugs[0] for problem in chosen]
        apart = len({(bug.path, bug.function) for bug in bugs}) == len(bugs) > 1
        names = tuple(sorted(problem.problem_id for problem in chosen))
        if apart and names not in seen:
            seen.add(names)
            yield chosen


def _alternating(lists: Sequence[Sequence[Bug]]) -> Iterator[Bug]:
    """One of each list in turn, until all are empty."""
    for row in zip_longest(*lists):
        yield from (bug for bug in row if bug is not None)


def _draw(seed: int, package: Package) -> random.Random:
    return random.Random(f"{seed} {package.name} {package.version}")  # noqa: S311 - a sample, not a secret


class Spread:
    """Keeps the accepted bugs of a package apart: one per line, few per function."""

    def __init__(self, accepted: Iterable[Bug] = ()) -> None:
        self._functions: Counter[tuple[str, str]] = Counter()
        self._lines: set[tuple[str, int]] = set()
        for bug in accepted:
            self.add(bug)

    def room(self, bug: Bug) -> bool:
        crowded = self._functions[bug.path, bug.function] >= PER_FUNCTION
        return not crowded and (bug.path, bug.line) not in self._lines

    def add(self, bug: Bug) -> None:
        self._functions[bug.path, bug.function] += 1
        self._lines.add((bug.path, bug.line))


def procedural(package: Package, bug: Bug, symptom: Symptom, *, hint: int) -> Problem:
    """A problem with one mutation; the gates have not been tried yet."""
    spec = _spec(package, (bug,), symptom, hint)
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
    return _problem(package, spec, f"{_short(bug)}-{identity}", prompt)


def combined(package: Package, parts: Sequence[Problem], symptom: Symptom, *, hint: int) -> Problem:
    """A problem with several mutations and a line of failing behaviour for each. `hint` is at most 2.

    Each part was validated on its own, so repairing only some of them is not enough. Rejected where a part does not show
    while the others are broken too.
    """
    specs = [read_spec(part) for part in parts]
    bugs = tuple(spec.bugs[0] for spec in specs)
    told = []
    for part in specs:
        own = set(part.fail_to_pass) & set(symptom.fail_to_pass)
        others = {node for other in specs if other is not part for node in other.fail_to_pass}
        heard = [failure for failure in symptom.failures if failure.node in own]
        heard = [failure for failure in heard if failure.node not in others] or heard
        if not heard:
            raise Rejected("one bug hides another")
        told.append(behaviour(heard))
    spec = _spec(package, bugs, symptom, hint)
    paths, functions = dict.fromkeys(bug.path for bug in bugs), dict.fromkeys(bug.function for bug in bugs)
    behaviours = "\n".join(dict.fromkeys(told))
    prompt = text.prompt(package.name, behaviours, hint=hint, path=", ".join(paths), function=", ".join(functions))
    identity = digest(*(bug.model_dump_json() for bug in bugs))[:8]
    return _problem(package, spec, f"{'-and-'.join(map(_short, bugs))}-{identity}", prompt)


def pointed(problem: Problem) -> Problem | None:
    """The same bug, tests and oracle with the faulty line alone (hint 4), under an id of its own.

    None where that line leaves too much open: what is missing is not in it, it could be wrong in many places, or the
    repair is long; and where several lines are wrong.
    """
    spec = read_spec(problem)
    bug = spec.bug
    if bug is None or spec.also or bug.kind in OPEN or max(len(bug.old), len(bug.new)) > LONGEST_PIECE:
        return None
    source = spec.broken()[bug.path].decode()
    sites = {mutation.column for mutation in mutations(source, READABLE) if mutation.line == bug.line}
    if len(sites) > MOST_SITES:
        return None
    told, line = problem.prompt.split("\n")[1], source.split("\n")[bug.line - 1]
    prompt = text.prompt(
        spec.package, told, hint=POINTED, path=bug.path, function=bug.function, lines=[(bug.line, line)]
    )
    changed = {
        "problem_id": f"{problem.problem_id}-line",
        "prompt": prompt,
        "spec": spec.model_copy(update={"hint": POINTED}).dump(),
        "difficulty": DIFFICULTY[POINTED],
    }
    return problem.model_copy(update=changed)


def pair_id(package: str, old: str, new: str) -> str:
    return f"swe/{package}/{old}-to-{new}"


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
    return _problem(package, spec, f"{old}-to-{new}", prompt)


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


def _short(bug: Bug) -> str:
    return bug.function.rpartition(".")[2].strip("_")


def _spec(package: Package, bugs: Sequence[Bug], symptom: Symptom, hint: int) -> Spec:
    return Spec(
        package=package.name,
        version=package.version,
        sha256=package.sha256[package.version],
        tests_version=package.version,
        hint=hint,
        bug=bugs[0],
        also=tuple(bugs[1:]),
        repair=tuple(Edit(path=bug.path, line=bug.line, old=bug.new, new=bug.old) for bug in bugs),
        test_files=symptom.test_files,
        fail_to_pass=symptom.fail_to_pass,
        duration_s=symptom.duration_s,
    )


def _problem(package: Package, spec: Spec, name: str, prompt: str) -> Problem:
    functions = " and ".join(dict.fromkeys(bug.function for bug in spec.bugs))
    what = f"{'bugs' if spec.also else 'a bug'} in {functions}" if functions else f"what {spec.tests_version} changed"
    return Problem(
        problem_id=f"swe/{package.name}/{name}",
        kind="swe",
        source=f"{package.name}=={spec.version}",
        split=package.split,
        title=f"{package.name} {spec.version}: {what}",
        prompt=prompt,
        spec=spec.dump(),
        licence=package.licence,
        allowed_uses=["training", "evaluation"],
        difficulty=difficulty(spec),
        oracle_passed=False,
        null_failed=False,
        created_at=now(),
    )


def difficulty(spec: Spec) -> float:
    """0 to 1: the less is told, the more places are wrong and the less a faulty line shows, the harder."""
    if not spec.bugs:
        return PAIR_DIFFICULTY
    lossy = any(bug.kind in LOSSY for bug in spec.bugs)
    return round(min(1.0, DIFFICULTY[spec.hint] + 0.1 * lossy + 0.1 * len(spec.also)), 2)
