"""The repositories of rows that come with an image each, as SWE-bench's do: they lie in the image's `/testbed`."""

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from sandboxes.backends.base import WORKDIR, Backend, SandboxError
from sandboxes.backends.docker import connect
from sandboxes.backends.foreign import work_tree
from sandboxes.problems.foreign import BadRow
from sandboxes.problems.swe.importing.git import Clones

_COLUMN = re.compile(r"\{(\w+)\}")
BUILT = ("__pycache__", ".pytest_cache", ".git")  # folders that are no part of a tree


def of_rows(template: str | None) -> bool:
    """Whether a name of an image is one for each row: "sweb.eval.x86_64.{instance_id}"."""
    return bool(template and _COLUMN.search(template))


def image_of(template: str, row: Mapping[str, Any], backend: Backend) -> str:
    """The image of a row, its columns put into the name. BadRow where a column is missing, or the machine has no such image."""

    def column(match: re.Match[str]) -> str:
        value = row.get(match[1])
        if not isinstance(value, str) or not value:
            raise BadRow(f"--image {template!r} names the column {match[1]!r}, which this row has not as a text")
        return value

    name = _COLUMN.sub(column, template)
    if backend.name != "docker":
        return name
    # Registries refuse two underscores in a row; SWE-bench writes _1776_ instead.
    spellings = dict.fromkeys((name, name.replace("__", "_1776_").lower()))
    client = connect()
    try:
        there = {tag for image in client.images.list() for tag in image.tags}
    finally:
        client.close()
    for spelling in spellings:
        if spelling in there or f"{spelling}:latest" in there:
            return spelling
    raise BadRow(f"the Docker engine has no image {' or '.join(spellings)}: `docker pull` or `docker load` it first")


@contextmanager
def clones_in(image: str, backend: Backend) -> Iterator[Clones]:
    """What an image keeps in `/testbed`, in place of a folder of clones. BadRow where it keeps nothing there."""
    with tempfile.TemporaryDirectory(prefix="testbed-") as folder:
        root = Path(folder, "testbed")
        root.mkdir()
        for path, content in _files(image, backend).items():
            if path.startswith("/") or ".." in PurePosixPath(path).parts:
                raise BadRow(f"the image {image} has a file that leads out of {WORKDIR}: {path}")
            target = root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        yield _Testbed(root)


class _Testbed(Clones):
    """One work tree, whichever repository is asked for: at a commit where it has its history, else as it lies there.

    What is not under version control, such as compiled modules and the metadata of an editable installation, belongs to
    every tree: tests need it.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root.parent)
        self._root = root

    def find(self, *names: str) -> Path:
        named = self._root.with_name(names[0].rpartition("/")[2])  # mirrors are told by their name
        if named != self._root:
            shutil.move(self._root, named)
            self._root = named
        return self._root

    def tree(self, clone: Path, commit: str) -> dict[str, bytes]:
        lying = {
            str(path.relative_to(clone)): path.read_bytes()
            for path in sorted(clone.rglob("*"))
            if path.is_file() and not {*path.relative_to(clone).parts} & {*BUILT}
        }
        if not (clone / ".git").exists():
            return lying
        kept = super().tree(clone, commit)
        tracked = {*super().tree(clone, "HEAD"), *kept}
        return {path: content for path, content in lying.items() if path not in tracked} | kept


def _files(image: str, backend: Backend) -> dict[str, bytes]:
    try:
        if backend.name == "docker":
            client = connect()
            try:
                return work_tree(client, image, WORKDIR)
            finally:
                client.close()
        root = Path(image + WORKDIR)
        if not root.is_dir():
            raise FileNotFoundError(f"the image {image} has no {WORKDIR}")
        return {
            str(path.relative_to(root)): path.read_bytes()
            for path in sorted(root.rglob("*"))
            if path.is_file() and not path.is_symlink()
        }
    except (FileNotFoundError, SandboxError) as error:
        raise BadRow(f"{error}: give a folder of clones with --repos instead") from error
