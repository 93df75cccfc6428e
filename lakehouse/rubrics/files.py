"""Rubric files: `name@version.sql` with a header. Versions lie side by side, the shipped ones and the user's own.

    -- name: swe
    -- version: 2
    -- kinds: swe
    -- grain: one row per swe episode
    -- inputs: episodes, evidence "tests" and "scan"
    -- parameter partial: 0.2, the most that a repair in part earns
    select episode_id, status, outcome, reward, components from ... where $partial ...

`kinds` are the kinds of problems whose episodes it judges; without the line every kind. A parameter's default is a JSON
scalar. `unjudged` is the share of trainable episodes that may stay without a reward before labelling with it fails (a half).
One version is one text: to judge otherwise, write the next version.
"""

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lakehouse.home import home
from lakehouse.records import digest

SHIPPED = Path(__file__).parents[1] / "sql" / "rubrics"
NAME = r"[a-z_]+"
_REFERENCE = re.compile(rf"({NAME})@([1-9]\d*)(?::(.+))?")
_REQUIRED = ("name", "version", "grain", "inputs")
_KNOWN = (*_REQUIRED, "kinds", "unjudged", "outcome", "reward", "note")

MAX_UNJUDGED = 0.5  # share of the trainable episodes

Scalar = str | float | bool


class UnknownRubric(LookupError):
    """No rubric of this name and version, or it has no such parameter."""


class RubricError(ValueError):
    """A rubric's file or what it gives is wrong; nothing was written."""


@dataclass(frozen=True)
class Parameter:
    """A named value of a rubric. A reference may give another of the same type: `swe@3:partial=0.5`."""

    default: Scalar
    about: str


@dataclass(frozen=True)
class Rubric:
    """One version of one rubric. `kinds` empty: it judges every kind of problem."""

    name: str
    version: int
    path: Path
    sql: str
    header: Mapping[str, str]
    kinds: tuple[str, ...]
    parameters: Mapping[str, Parameter]
    unjudged: float  # the share of trainable episodes that it may leave without a reward

    @property
    def title(self) -> str:
        return f"{self.name}@{self.version}"

    @property
    def defaults(self) -> dict[str, Scalar]:
        return {name: one.default for name, one in self.parameters.items()}

    @property
    def digest(self) -> str:
        """Of the SQL without its comments, indentation and empty lines."""
        lines = (line.strip() for line in self.sql.splitlines())
        return digest("\n".join(line for line in lines if line and not line.startswith("--")))[:16]

    @property
    def examples(self) -> Path:
        """Its given/expect examples, which a good rubric has."""
        return self.path.with_suffix(".yaml")

    @property
    def shipped(self) -> bool:
        return self.path.parent == SHIPPED

    def error(self, what: object) -> RubricError:
        """An error that names the rubric and its file."""
        return RubricError(f"rubric {self.title} ({self.path}): {what}")


@dataclass(frozen=True)
class Asked:
    """A rubric and the parameters it judges with, defaults included."""

    rubric: Rubric
    parameters: Mapping[str, Scalar]

    @property
    def title(self) -> str:
        """As it is asked for: `swe@3`, `swe@3:partial=0.5`."""
        other = [
            f"{name}={json.dumps(value) if not isinstance(value, str) else value}"
            for name, value in self.parameters.items()
            if value != self.rubric.parameters[name].default
        ]
        return self.rubric.title + (":" + ",".join(other) if other else "")


def rubrics() -> list[Rubric]:
    """Every version of every rubric, by name and version. RubricError where a file is wrong or two are the same version."""
    return sorted(map(read, _files().values()), key=lambda one: (one.name, one.version))


def asked(reference: str) -> Asked:
    """The rubric that a reference such as `swe@3` or `swe@3:partial=0.5,strict=true` names. UnknownRubric if there is none."""
    files = _files()
    match = _REFERENCE.fullmatch(reference)
    if match is None or f"{match[1]}@{match[2]}" not in files:
        raise UnknownRubric(
            f"no rubric {reference!r}; there are {', '.join(sorted(files))}. "
            f"A file NAME@VERSION.sql in {home().rubrics} is one more"
        )
    rubric = read(files[f"{match[1]}@{match[2]}"])
    return Asked(rubric, rubric.defaults | _given(rubric, match[3]))


def current(name: str) -> str:
    """A rubric in its newest version, such as "swe@2". UnknownRubric if there is none of this name."""
    titles = [match for match in map(_REFERENCE.fullmatch, _files()) if match]
    versions = [int(match[2]) for match in titles if match[1] == name]
    if not versions:
        raise UnknownRubric(f"no rubric {name!r}; there are {', '.join(sorted({match[1] for match in titles}))}")
    return f"{name}@{max(versions)}"


def _files() -> dict[str, Path]:
    """Every file by its name without `.sql`. A wrong one is in nobody's way until it is asked for."""
    found: dict[str, Path] = {}
    for path in itertools.chain(*(sorted(folder.glob("*.sql")) for folder in (SHIPPED, home().rubrics))):
        if path.stem in found:
            raise RubricError(f"{path} and {found[path.stem]} are the same version: give one of them the next number")
        found[path.stem] = path
    return found


def read(path: Path) -> Rubric:
    """The rubric in a file. RubricError where its header is wrong."""
    sql = path.read_text()
    header = dict(_header(sql))
    wrong = [name for name in _REQUIRED if name not in header]
    if wrong:
        raise RubricError(f"{path} has no line `-- {wrong[0]}: ...` in the comment at its top")
    unknown = [name for name in header if name not in _KNOWN and not name.startswith("parameter ")]
    if unknown:
        raise RubricError(
            f"{path}: its header has {unknown[0]!r}, which is none of {', '.join(_KNOWN)} or `parameter NAME`"
        )
    title = f"{header['name']}@{header['version']}"
    if path.stem != title or not _REFERENCE.fullmatch(title):
        raise RubricError(
            f"{path} says it is {title!r}: its file must be called {title}.sql, lower-case letters and a number"
        )
    return Rubric(
        name=header["name"],
        version=int(header["version"]),
        path=path,
        sql=sql.rstrip().rstrip(";"),
        header=header,
        kinds=tuple(kind.strip() for kind in header.get("kinds", "").split(",") if kind.strip()),
        parameters={
            key.removeprefix("parameter ").strip(): _parameter(path, key, text)
            for key, text in header.items()
            if key.startswith("parameter ")
        },
        unjudged=_share(path, header.get("unjudged")),
    )


def _header(sql: str) -> Iterator[tuple[str, str]]:
    """`-- key: value` lines of the comment at the top; a line that is indented further goes on with the value before it."""
    key, value = "", ""
    for line in itertools.takewhile(lambda line: line.startswith("--"), sql.splitlines()):
        text = line[2:]
        if key and text.startswith("   "):
            value = f"{value} {text.strip()}"
            continue
        if key:
            yield key, value
        key, _, value = (part.strip() for part in text.partition(":"))
    if key:
        yield key, value


def _parameter(path: Path, key: str, text: str) -> Parameter:
    try:
        default, end = json.JSONDecoder().raw_decode(text)
    except ValueError:
        default, end = None, 0
    if not isinstance(default, Scalar) and not isinstance(default, int):
        raise RubricError(f'{path}: `{key}` must begin with its default: a number, true, false or "text", not {text!r}')
    return Parameter(default, text[end:].lstrip(" ,"))


def _share(path: Path, text: str | None) -> float:
    """A share from 0 to 1 at the beginning of a header's value; MAX_UNJUDGED where there is none."""
    try:
        share = MAX_UNJUDGED if text is None else float(text.partition(",")[0])
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise RubricError(f"{path}: `unjudged` begins with a share from 0 to 1, not {text!r}")
    return share


def _given(rubric: Rubric, text: str | None) -> dict[str, Scalar]:
    """The parameters in `partial=0.5,strict=true`, each of the type of its default."""
    given: dict[str, Scalar] = {}
    for pair in (text or "").split(",") if text else []:
        name, _, written = (part.strip() for part in pair.partition("="))
        if name not in rubric.parameters:
            there = ", ".join(rubric.parameters) or "none"
            raise UnknownRubric(f"rubric {rubric.title} has no parameter {name!r}; it has {there}")
        given[name] = _typed(rubric, name, written)
    return given


def _typed(rubric: Rubric, name: str, written: str) -> Scalar:
    default = rubric.parameters[name].default
    if isinstance(default, str):
        return written
    try:
        value = json.loads(written)
    except ValueError:
        value = None
    if isinstance(value, bool) is not isinstance(default, bool) or not isinstance(value, int | float):
        kind = "true or false" if isinstance(default, bool) else "a number"
        raise UnknownRubric(f"parameter {name!r} of rubric {rubric.title} is {kind}, not {written!r}")
    return value
