"""What a task's Dockerfile asks for, as far as a box without a network can give it. Nothing is built."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from sandboxes.problems.foreign import BadRow

NETWORK = re.compile(
    r"\b(apt-get|apt|apk|yum|dnf|pip3?|pipx|uvx?|poetry|conda|npm|npx|yarn|cargo|gem|go (get|install)|curl|wget|git clone)\b"
)
PLAIN = re.compile(
    r"(^|/)(debian|ubuntu|python|ubuntu-\d\d-\d\d|python-3-\d+)(:|$)"
)  # bases our root file system stands in for
IGNORED = {"CMD", "ENTRYPOINT", "EXPOSE", "LABEL", "MAINTAINER", "SHELL", "USER", "HEALTHCHECK", "STOPSIGNAL", "ARG"}
MOST_BYTES = 4 << 20


@dataclass
class Recipe:
    """`files` of the work tree, relative to `workdir`; `setup`: shell lines that are run in every new box."""

    workdir: str = "/app"
    env: dict[str, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    setup: list[str] = field(default_factory=list)


def recipe(context: Path, *, image: bool) -> Recipe:
    """Read `context`/Dockerfile. With `image`, one that was built elsewhere stands for it, and only WORKDIR and ENV count.

    BadRow names the line that a box cannot do.
    """
    path = context / "Dockerfile"
    made = Recipe()
    if not path.is_file():
        return made
    based = False
    for line in _lines(path.read_text(encoding="utf-8")):
        word, _, rest = line.partition(" ")
        word, rest = word.upper(), rest.strip()
        if word == "WORKDIR":
            made.workdir = str(PurePosixPath(made.workdir, rest))
        elif word == "ENV":
            made.env |= _env(rest)
        elif image or word in IGNORED:
            continue
        elif word == "FROM":
            if based or not PLAIN.search(rest.split()[0]):
                raise BadRow(
                    f"{path}: {line!r} is no base that our root file system stands in for: give the built image, --image"
                )
            based = True
        elif word in ("COPY", "ADD"):
            _copy(context, made, rest, line)
        elif word == "RUN" and not NETWORK.search(rest):
            made.setup.append(rest)
        else:
            why = "needs a network" if word == "RUN" else "is not understood"
            raise BadRow(f"{path}: {line!r} {why}, and boxes have none: build the image elsewhere and give it, --image")
    return made


def _lines(text: str) -> Iterator[str]:
    """Instructions, with their continuations, without comments."""
    pending = ""
    for line in text.splitlines():
        if line.strip().startswith("#") or (not line.strip() and not pending):
            continue
        pending += line.rstrip().removesuffix("\\").strip() + " "
        if not line.rstrip().endswith("\\"):
            yield pending.strip()
            pending = ""
    if pending.strip():
        yield pending.strip()


def _env(rest: str) -> dict[str, str]:
    words = shlex.split(rest)
    if words and "=" not in words[0]:
        return {words[0]: " ".join(words[1:])}
    return dict(word.split("=", 1) for word in words if "=" in word)


def _copy(context: Path, made: Recipe, rest: str, line: str) -> None:
    words = shlex.split(rest)
    if any(word.startswith("--from") or "://" in word for word in words):
        raise BadRow(f"{context / 'Dockerfile'}: {line!r} takes from elsewhere: build the image and give it, --image")
    *sources, target = [word for word in words if not word.startswith("--")]
    place = PurePosixPath(made.workdir, target)
    if not place.is_relative_to(made.workdir):
        raise BadRow(
            f"{context / 'Dockerfile'}: {line!r} writes outside of {made.workdir}, the work tree: give the image, --image"
        )
    below = place.relative_to(made.workdir)
    for source in sources:
        found = context / source
        if found.is_dir():
            made.files |= {
                str(below / name): content for name, content in files_below(found).items() if name != "Dockerfile"
            }
        elif found.is_file():
            into = (
                below / found.name
                if target.endswith("/") or len(sources) > 1 or place == PurePosixPath(made.workdir)
                else below
            )
            made.files[str(into)] = found.read_bytes()
        else:
            raise BadRow(f"{context / 'Dockerfile'}: {line!r} names {source}, which is not there")


def files_below(folder: Path) -> dict[str, bytes]:
    """Every regular file below a folder, by its relative path. BadRow where they are too large, or a link leads out."""
    found: dict[str, bytes] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            raise BadRow(f"{path} is a link: a task's files are taken as they are, without links")
        if path.is_file():
            found[path.relative_to(folder).as_posix()] = path.read_bytes()
    if sum(map(len, found.values())) > MOST_BYTES:
        raise BadRow(f"{folder} holds more than {MOST_BYTES >> 20} MiB: a problem of this size belongs into an image")
    return found
