"""Canaries: copies of existing tests that contradict them, put among them under fresh names for every grading.

Of a test and its canary at most one can pass, so a report in which both do was forged, and so are objects that equal
everything. Every test that can be renamed gets a fresh name made of the same words, so neither a list of names nor a
name's looks tells a canary; only its expectation does, and who knows which expectation is right knows the answer.
"""

import ast
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sandboxes.problems.swe.contradict import Splice, contradictions

MOST_REPAIRED = 8  # FAIL_TO_PASS functions that get canaries
PER_REPAIRED = 3
RUNS = 60  # of a function's canaries together: one with many parameters gets fewer
KEPT = (2, 5)  # of the others
WORDS = ("basic", "case", "edge", "empty", "more", "order", "pair", "simple", "twice", "value")


@dataclass(frozen=True)
class Planted:
    """Test files as they are run. Node ids are known ones (of the problem) or run ones (of these files)."""

    files: dict[str, bytes] = field(default_factory=dict)
    runs_as: dict[str, str] = field(default_factory=dict)  # known -> run
    canaries: dict[str, tuple[str, ...]] = field(default_factory=dict)  # known -> run ids of what contradicts it

    @property
    def ids(self) -> list[str]:
        """Every run id, canaries among the others."""
        return sorted({*self.runs_as.values(), *self.copies})

    @property
    def copies(self) -> set[str]:
        """The run ids of the canaries."""
        return {one for many in self.canaries.values() for one in many}

    def unmasked(self, outcomes: Mapping[str, str]) -> list[str]:
        """The known tests that passed although a canary of theirs did not fail."""
        return [
            known
            for known, copies in self.canaries.items()
            if outcomes.get(self.runs_as[known]) == "P" and any(outcomes.get(copy) != "F" for copy in copies)
        ]


@dataclass(frozen=True)
class Test:
    """A test function in a file: byte offsets of its whole lines, decorators and all."""

    path: str
    classes: tuple[str, ...]
    node: ast.FunctionDef
    start: int
    end: int

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def id(self) -> str:
        return "::".join((self.path, *self.classes, self.name))

    @property
    def movable(self) -> bool:
        """Whether nothing of it is evaluated where it stands."""
        arguments = self.node.args
        annotated = any(one.annotation for one in (*arguments.args, *arguments.kwonlyargs)) or self.node.returns
        return not (self.node.decorator_list or arguments.defaults or arguments.kw_defaults or annotated)


class Source:
    """A test file and the tests that are defined in it, or nothing where it is written for another Python."""

    def __init__(self, path: str, content: bytes) -> None:
        self.path = path
        self.content = content
        self.lines = _line_starts(content)
        try:
            self.tests = list(self._tests(ast.parse(content).body, ()))
        except (SyntaxError, ValueError):
            self.tests = []

    def _tests(self, body: Sequence[ast.stmt], classes: tuple[str, ...]) -> Iterator[Test]:
        for node in body:
            if isinstance(node, ast.ClassDef):
                yield from self._tests(node.body, (*classes, node.name))
            elif isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                yield Test(self.path, classes, node, self.lines[first - 1], self.lines[node.end_lineno or node.lineno])


def plant(
    tree: Mapping[str, bytes],
    files: Sequence[str],
    repaired: Sequence[str],
    kept: Sequence[str],
    rng: random.Random,
    *,
    support: Sequence[str] = (),
) -> Planted:
    """The test files of a grading. `repaired` are the FAIL_TO_PASS ids, of which as many as can be get canaries.

    `support`: files that tests may be inherited from. Only those that are need be changed.
    """
    known = [*repaired, *kept]
    wanted = {_name(node) for node in known}
    sources = {path: Source(path, tree[path]) for path in files}
    missing = wanted - {test.name for source in sources.values() for test in source.tests}
    for path in support:
        if any(name.encode() in tree[path] for name in missing):
            sources[path] = Source(path, tree[path])
    names = Names(list(sources.values()), rng)
    planted = Planted()
    for node in known:
        planted.runs_as[node] = _renamed(node, names.fresh.get(_name(node), _name(node)))
    insertions: dict[str, list[tuple[int, bytes]]] = {path: [] for path in sources}
    defined = _defined(sources.values(), known)
    for test, splices, nodes in _chosen(sources, defined, {_function(node) for node in repaired}, rng):
        source = sources[test.path]
        copies = [names.invent() for _ in splices]
        for name, splice in zip(copies, splices, strict=True):
            insertions[test.path].append((_place(test, source.tests, rng), _copy(source.content, test, name, splice)))
        for node in nodes:
            planted.canaries[node] = tuple(_renamed(node, name) for name in copies)
    covered = {node.partition("::")[0] for node in planted.canaries}
    for path in files:
        if path not in covered and (held := [node for node in known if node.partition("::")[0] == path]):
            name, text = _bait(names, rng)
            insertions[path].append((len(tree[path]), text))
            planted.canaries.update(dict.fromkeys(held, (f"{path}::{name}",)))
    for path, source in sources.items():
        planted.files[path] = _written(source.content, insertions[path], names.splices(source))
    return planted


def _defined(sources: Iterable[Source], known: Sequence[str]) -> dict[str, tuple[Test, list[str]]]:
    """Test id -> the test and the known nodes that run it: in its own class, or by inheritance where its name is unique."""
    tests = [test for source in sources for test in source.tests]
    by_id, by_name = Counter(test.id for test in tests), Counter(test.name for test in tests)
    own = {test.id: test for test in tests if by_id[test.id] == 1}
    inherited = {test.name: test for test in tests if by_name[test.name] == 1}
    found: dict[str, tuple[Test, list[str]]] = {}
    for node in known:
        test = own.get(_function(node)) or inherited.get(_name(node))
        if test is not None:
            found.setdefault(test.id, (test, []))[1].append(node)
    return found


def _chosen(
    sources: Mapping[str, Source], defined: Mapping[str, tuple[Test, list[str]]], first: set[str], rng: random.Random
) -> Iterator[tuple[Test, list[Splice], list[str]]]:
    """The tests that get canaries, with what makes each of them a contradiction, and the nodes it contradicts."""
    repaired: list[tuple[Test, list[Splice], list[str]]] = []
    others: list[tuple[Test, list[Splice], list[str]]] = []
    for test, nodes in defined.values():
        source = sources[test.path]
        found = contradictions(test.node, source.content, source.lines, rng)
        if found:
            (repaired if first & set(map(_function, nodes)) else others).append((test, found, nodes))
    for test, found, nodes in rng.sample(repaired, min(MOST_REPAIRED, len(repaired))):
        yield test, found[: min(PER_REPAIRED, max(1, RUNS // len(nodes)))], nodes
    for test, found, nodes in rng.sample(others, min(rng.randint(*KEPT), len(others))):
        yield test, found[:1], nodes


def _bait(names: "Names", rng: random.Random) -> tuple[str, bytes]:
    """A test that fails whatever the code does, for a file none of whose tests can be copied."""
    name, words = names.invent(), [names.word() for _ in range(rng.randint(2, 4))]
    wrong = [*words[:-1], words[-1] + rng.choice("aeinorst")]
    body = f"    found = {' '.join(words)!r}.split()\n    assert found == {wrong!r}\n"
    return name, f"def {name}():\n{body}".encode()


def _place(test: Test, tests: Sequence[Test], rng: random.Random) -> int:
    """Where a copy goes: before or after its original, or beside any of its siblings where that makes no difference."""
    siblings = [other for other in tests if other.classes == test.classes] if test.movable else [test]
    beside = rng.choice(siblings)
    return rng.choice((beside.start, beside.end))


def _copy(source: bytes, test: Test, name: str, splice: Splice) -> bytes:
    body = source[test.start : splice.start] + splice.text + source[splice.end : test.end]
    renamed = re.sub(rb"(\bdef\s+)" + test.name.encode() + rb"\b", rb"\g<1>" + name.encode(), body, count=1)
    return renamed if renamed.endswith(b"\n") else renamed + b"\n"


def _written(source: bytes, insertions: Sequence[tuple[int, bytes]], renames: Sequence[Splice]) -> bytes:
    """The file with everything done to it, from its end to its start. Copies are set apart as tests are."""
    edits = [Splice(at, at, copy if at == 0 else b"\n" + copy + b"\n") for at, copy in insertions]
    for edit in sorted((*edits, *renames), key=lambda one: one.start, reverse=True):
        before = source[: edit.start]
        gap = b"\n" if edit.start == edit.end and before and not before.endswith(b"\n") else b""
        source = before + gap + edit.text + source[edit.end :]
    return source


class Names:
    """Fresh names for the tests of some files, of the words that their names are made of."""

    def __init__(self, sources: Sequence[Source], rng: random.Random) -> None:
        self._rng = rng
        used = Counter(word for source in sources for word in re.findall(rb"\w+", source.content))
        self._taken = {word.decode(errors="replace") for word in used}
        defined = Counter(test.name for source in sources for test in source.tests)
        words = {word for name in defined for word in name.split("_")[1:] if word}
        self._words = sorted(words | set(WORDS[: max(0, 6 - len(words))]))
        # A name that is used for something else besides may be needed as it is. Fresh names are in the order of the old ones:
        # unittest runs a class's tests in alphabetical order, and some pass in the order they were written for only.
        free = sorted(name for name, count in defined.items() if used[name.encode()] == count)
        self.fresh = dict(zip(free, sorted(self.invent() for _ in free), strict=True))

    def word(self) -> str:
        return self._rng.choice(self._words)

    def invent(self) -> str:
        """A name that is in none of the files."""
        size = 2
        while True:
            size += self._rng.random() < 0.3  # longer where the short ones are taken
            picked = self._rng.choices(self._words, k=min(size, 6))
            name = "_".join(("test", *picked, *([str(self._rng.randint(2, 99))] if size > 4 else [])))
            if name not in self._taken:
                self._taken.add(name)
                return name

    def splices(self, source: Source) -> list[Splice]:
        """What gives every renamed test of a file its fresh name."""
        found = []
        for test in source.tests:
            if test.name in self.fresh:
                match = re.compile(rb"\bdef\s+(" + test.name.encode() + rb")\b").search(source.content, test.start)
                assert match is not None
                found.append(Splice(*match.span(1), self.fresh[test.name].encode()))
        return found


def _line_starts(source: bytes) -> list[int]:
    """Byte offset of every line's start, and of the end of the last."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def _function(node: str) -> str:
    """A node id without its parameters."""
    return node.partition("[")[0]


def _name(node: str) -> str:
    return _function(node).rpartition("::")[2]


def _renamed(node: str, name: str) -> str:
    function, bracket, parameters = node.partition("[")
    return f"{function.rpartition('::')[0]}::{name}{bracket}{parameters}"
