"""A problem of one's own, as a folder, and what is wrong with it.

problem.toml     name, licence, and where code and tests lie
statement.md     what the agent is told
repository/      the source with the bug, and the tests that the agent may see
tests/           the tests that grade; they are laid over the repository's `tests_into`
solution.patch   a unified diff against repository/ that makes them pass
"""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lakehouse.records import Split
from sandboxes.backends.base import Backend
from sandboxes.problems.foreign import BadRow, Terms
from sandboxes.problems.swe.importing.admit import admit
from sandboxes.problems.swe.importing.candidate import Candidate, layout_of
from sandboxes.problems.swe.importing.git import applied
from sandboxes.problems.swe.packages import PACKAGES
from sandboxes.problems.swe.repositories import LARGEST_TREE
from sandboxes.problems.swe.validate import Rejected

MANIFEST = "problem.toml"
STATEMENT = "statement.md"
REPOSITORY = "repository"
GRADING = "tests"
SOLUTION = "solution.patch"
LEAKS = (".git", ".hg", ".svn", "__pycache__", ".pytest_cache", ".venv", "node_modules")
TELLING = 16  # characters from which a line of the solution in the statement gives it away

_LINTED = Terms(name="lint", split="train", licence="unsaid", allowed_uses=())


class Manifest(BaseModel):
    """`problem.toml`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,99}$")]
    licence: Annotated[str, Field(min_length=1)]  # SPDX
    split: Split = "train"
    difficulty: Annotated[float, Field(ge=0, le=1)] = 0.5
    sources: tuple[str, ...] = ()  # patterns of what may be repaired; none: every module that is no test
    paths: tuple[str, ...] = ()  # put on sys.path; none: src or lib where there is one, and the top
    tests_into: str = "tests"  # where in the repository the tests belong
    fail_to_pass: tuple[str, ...] | None = None  # node ids; none: found by running
    pass_to_pass: tuple[str, ...] | None = None
    image: str | None = None

    def terms(self, given: Terms) -> Terms:
        """Terms with what the folder says of itself."""
        return given.model_copy(
            update={"licence": self.licence, "split": self.split, "image": self.image or given.image}
        )


class Finding(BaseModel):
    """Something wrong with a folder, and how to mend it."""

    folder: str
    file: str
    wrong: str
    remedy: str


def folders(path: Path) -> list[Path]:
    """The problem folders at a path: itself, or those directly in it. BadRow where there is none."""
    if (path / MANIFEST).is_file():
        return [path]
    found = sorted(one.parent for one in path.glob(f"*/{MANIFEST}"))
    if not found:
        raise BadRow(f"{path} is no problem folder and holds none: such a folder has a {MANIFEST}")
    return found


def lint(folder: Path) -> list[Finding]:
    """Everything that can be seen to be wrong without running a test."""
    found = [
        Finding(folder=folder.name, file=file, wrong=wrong, remedy=remedy) for file, wrong, remedy in _wrong(folder)
    ]
    if not found:
        try:
            candidate(folder, _LINTED)
        except BadRow as why:
            found.append(Finding(folder=folder.name, file=SOLUTION, wrong=str(why), remedy="see docs/problems.md"))
    return found


async def ran(folder: Path, backend: Backend) -> list[Finding]:
    """What only running the tests shows: validation and both gates. Nothing of it is kept but the work trees."""
    try:
        await admit(candidate(folder, _LINTED), backend, terms(folder, _LINTED))
    except Rejected as why:
        remedy = "run the tests by hand with and without the solution, in repository/ with tests/ laid over it"
        return [Finding(folder=folder.name, file=GRADING, wrong=str(why), remedy=remedy)]
    return []


def candidate(folder: Path, given: Terms) -> Candidate:
    """The folder as a candidate. BadRow says what is wrong; `lint` says it all at once."""
    manifest = _manifest(folder)
    before = _tree(folder / REPOSITORY)
    tests = {f"{manifest.tests_into.strip('/')}/{path}": text for path, text in _tree(folder / GRADING).items()}
    solution = (folder / SOLUTION).read_text()
    repaired = applied(solution, before, what=SOLUTION)
    after = repaired | tests
    changed = sorted(path for path in {*before, *repaired} if before.get(path) != repaired.get(path))
    files = tuple(path for path in tests if _is_test(path))
    layout = layout_of(manifest.name, after, changed, files, manifest.terms(given))
    said = {"sources": manifest.sources, "paths": manifest.paths}
    layout = layout.model_copy(update={name: value for name, value in said.items() if value})
    package = layout.package({"1": ""})
    outside = [path for path in changed if not package.is_source(path)]
    if outside:
        raise BadRow(
            f"{SOLUTION} changes {outside[0]}, which is a test or not among the sources {list(layout.sources)}"
        )
    return Candidate(
        name=manifest.name,
        layout=layout,
        label="folder",
        before=before,
        after=after,
        statement=(folder / STATEMENT).read_text().strip(),
        test_files=files,
        fail_to_pass=manifest.fail_to_pass,
        pass_to_pass=manifest.pass_to_pass,
        difficulty=manifest.difficulty,
    )


def terms(folder: Path, given: Terms) -> Terms:
    """Terms with the folder's own licence and split."""
    return _manifest(folder).terms(given)


def _manifest(folder: Path) -> Manifest:
    try:
        return Manifest.model_validate(tomllib.loads((folder / MANIFEST).read_text()))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadRow(f"{MANIFEST} is not TOML: {error}") from error
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, one['loc']))}: {one['msg'].lower()}" for one in error.errors()]
        raise BadRow(f"{MANIFEST}: {'; '.join(wrong)}") from error


def _wrong(folder: Path) -> Iterator[tuple[str, str, str]]:
    """(file, what is wrong, remedy)"""
    missing = [name for name in (MANIFEST, STATEMENT, SOLUTION) if not (folder / name).is_file()]
    missing += [name for name in (REPOSITORY, GRADING) if not (folder / name).is_dir()]
    for name in missing:
        yield (
            name,
            "it is not there",
            f"a problem folder has {MANIFEST}, {STATEMENT}, {REPOSITORY}/, {GRADING}/, {SOLUTION}",
        )
    if MANIFEST not in missing:
        yield from _wrong_manifest(folder)
    if STATEMENT not in missing:
        yield from _wrong_statement(folder)
    if REPOSITORY not in missing:
        yield from _wrong_repository(folder / REPOSITORY)
    if GRADING not in missing:
        yield from _wrong_tests(folder / GRADING)
    if SOLUTION not in missing and REPOSITORY not in missing:
        solution = (folder / SOLUTION).read_text(errors="replace")
        if not solution.strip():
            yield (
                SOLUTION,
                "it is empty",
                "write it with `diff -ru` or `git diff --no-index`, paths relative to repository/",
            )
            return
        try:
            applied(solution, _tree(folder / REPOSITORY), what=SOLUTION)
        except BadRow as why:
            yield SOLUTION, str(why), "paths are relative to repository/, with the prefixes a/ and b/"


def _wrong_manifest(folder: Path) -> Iterator[tuple[str, str, str]]:
    try:
        manifest = _manifest(folder)
    except BadRow as why:
        yield MANIFEST, str(why), f"it takes {', '.join(Manifest.model_fields)}"
        return
    if manifest.name in PACKAGES:
        yield MANIFEST, f"{manifest.name} is a package of the shipped problems", "give it another name"
    for key in ("tests_into", *(("paths",) if manifest.paths else ())):
        for path in [manifest.tests_into] if key == "tests_into" else manifest.paths:
            if path.startswith("/") or ".." in PurePosixPath(path).parts:
                yield MANIFEST, f"{key} leads out of the repository: {path}", "give a path relative to repository/"


def _wrong_statement(folder: Path) -> Iterator[tuple[str, str, str]]:
    statement = (folder / STATEMENT).read_text(errors="replace")
    if not statement.strip():
        yield STATEMENT, "it is empty", "say what goes wrong, as a user would report it"
    solution = folder / SOLUTION
    added = solution.read_text(errors="replace").splitlines() if solution.is_file() else []
    for line in added:
        text = line[1:].strip()
        if line.startswith("+") and not line.startswith("+++") and len(text) >= TELLING and text in statement:
            yield STATEMENT, f"it gives a line of the solution away: {text}", "tell the behaviour and not the repair"


def _wrong_repository(root: Path) -> Iterator[tuple[str, str, str]]:
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root.parent))
        if path.name in LEAKS and path.parent.name not in LEAKS:
            yield name, "history and leftovers tell the repair, or are none of the agent's business", "remove it"
        elif path.is_symlink():
            yield name, "it is a link, which boxes do not get", "put a copy in its place"
    tree = _tree(root)
    if not any(path.endswith(".py") for path in tree):
        yield REPOSITORY, "it holds no Python module", "put the source with the bug there"
    if sum(map(len, tree.values())) > LARGEST_TREE:
        yield REPOSITORY, f"it is larger than {LARGEST_TREE >> 20} MiB", "leave out what the tests do not need"


def _wrong_tests(root: Path) -> Iterator[tuple[str, str, str]]:
    tree = _tree(root)
    if not any(_is_test(path) for path in tree):
        yield GRADING, "no file in it is a test", "name test files test_*.py or *_test.py"
    for path, content in tree.items():
        if path.endswith(".py"):
            try:
                ast.parse(content)
            except (SyntaxError, ValueError) as error:
                yield f"{GRADING}/{path}", f"it is not Python: {error}", "mend it"


def _is_test(path: str) -> bool:
    name = PurePosixPath(path).name
    return name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py"))


def _tree(root: Path) -> dict[str, bytes]:
    """Regular files below a folder, without leftovers."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.is_symlink() and not {*path.relative_to(root).parts} & {*LEAKS}
    }
