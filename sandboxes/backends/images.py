"""Images: what a box sees of a file system. Ours are made once per recipe and named by it; others go by their own name.

bubblewrap uses a folder, Docker an image imported from it, so both run the same files. Nothing is made, fetched or imported
when a box starts: an image that is not there is an error that says how to make it.
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fcntl import LOCK_EX, flock
from pathlib import Path

import docker
import docker.errors

from lakehouse.home import home
from sandboxes.backends import rootfs
from sandboxes.backends.base import BackendUnavailable, RootFilesystem, SandboxError
from sandboxes.backends.rootfs import REPOSITORY, Recipe

FOLDER = Path("/var/cache/lakeloop")  # not the home folder: the boxes' uid must be able to enter it
STANDARD = Recipe()
UNUSED_S = 30 * 86_400.0


class ImageMissing(SandboxError):
    """An image that nobody made or loaded on this machine. The text says how to."""


def silent(message: str) -> None:
    """The progress callback that says nothing."""


def folder_of(name: str) -> Path:
    """The root file system of one of our images. ImageMissing where it was not made here."""
    path = FOLDER / f"root-{name.removeprefix(f'{REPOSITORY}:')}"
    if not path.is_dir():
        raise ImageMissing(f"the image {name} is not on this machine: run `{_how(name)}` once as root")
    with suppress(PermissionError):  # another user than the one who made it
        _note(path).touch()
    return path


def _how(name: str) -> str:
    return "lakeloop images build" + ("" if name == STANDARD.name else " --debian ... --python ..., as for that image")


def root_filesystem(progress: Callable[[str], None] = silent, recipe: Recipe = STANDARD) -> RootFilesystem:
    """The root file system of a recipe, made now if it is not there. BackendUnavailable where it cannot be made."""
    path = FOLDER / f"root-{recipe.digest}"
    if not path.is_dir():
        if os.geteuid() != 0:
            raise BackendUnavailable(
                f"the boxes' root file system ({path}) is not there and only root can make it: run `{_how(recipe.name)}` as root"
            )
        with _locked(FOLDER / f"root-{recipe.digest}.lock"):
            if not path.is_dir():
                rootfs.make(path, recipe, progress)
    with suppress(PermissionError):
        if not _note(path).exists():
            _note(path).write_text(rootfs.describe(path, recipe))
    return RootFilesystem(path, recipe.digest)


def docker_image(
    client: docker.DockerClient, progress: Callable[[str], None] = silent, recipe: Recipe = STANDARD
) -> str:
    """The name of the image made of a recipe's root file system, imported now if the engine does not have it."""
    root = root_filesystem(progress, recipe)
    with _locked(home().cache / f"import-{recipe.digest}.lock"):
        try:
            client.images.get(recipe.name)
        except docker.errors.ImageNotFound:
            progress(f"importing {recipe.name} into the Docker engine")
            _import(client, root)
    return recipe.name


def imported(client: docker.DockerClient, name: str) -> bool:
    """Whether a name is one of ours; ImageMissing where it is and the engine does not have it."""
    if not name.startswith(f"{REPOSITORY}:"):
        return False
    try:
        client.images.get(name)
    except docker.errors.ImageNotFound as error:
        raise ImageMissing(f"the Docker engine does not have the image {name}: run `{_how(name)}` once") from error
    with suppress(OSError):  # it may be another user's, or made on another machine
        _note(FOLDER / f"root-{name.removeprefix(f'{REPOSITORY}:')}").touch()
    return True


def _import(client: docker.DockerClient, root: RootFilesystem) -> None:
    """Stream the folder into the engine as an image of one layer."""
    command = ["tar", "-C", str(root.path), "--numeric-owner", "-c", "."]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as tar:
        client.api.import_image_from_stream(tar.stdout, repository=REPOSITORY, tag=root.digest)
    if tar.returncode != 0:
        raise SandboxError(f"tar of {root.path} failed with status {tar.returncode}")


@dataclass(frozen=True)
class Image:
    """One of our images on this machine."""

    name: str
    standard: bool  # the one that boxes get unless told otherwise
    debian: list[str]  # beside the standard packages
    python: list[str]
    installed: dict[str, str]  # Python packages that came with them: name -> version
    bytes: int
    unused_s: float  # since a program last looked it up
    in_docker: bool | None  # None: no engine answers


def listed(client: docker.DockerClient | None) -> list[Image]:
    """Our images, the one used last first."""
    tags = None if client is None else set(_tags(client))
    return sorted((_image(path, tags) for path in _roots()), key=lambda image: image.unused_s)


def _image(path: Path, tags: set[str] | None) -> Image:
    name = f"{REPOSITORY}:{path.name.removeprefix('root-')}"
    note = _note(path)
    said = json.loads(note.read_text()) if note.exists() else {}
    used = note.stat().st_mtime if note.exists() else path.stat().st_mtime
    return Image(
        name=name,
        standard=name == STANDARD.name,
        debian=said.get("debian", []),
        python=said.get("python", []),
        installed=said.get("installed", {}),
        bytes=_size(path),
        unused_s=round(max(0.0, time.time() - used), 1),
        in_docker=None if tags is None else name in tags,
    )


@dataclass(frozen=True)
class Pruned:
    """What was removed: names of images, and bytes of disk given back by folders."""

    images: list[str]
    bytes: int


def prune(client: docker.DockerClient | None, *, unused_s: float = UNUSED_S) -> Pruned:
    """Remove images that nobody looked up for so long, never the standard one; and what broken-off builds left.

    What was used within the last hour stays whatever is asked, for it may have boxes. Images of others are left alone.
    """
    unused_s = max(unused_s, 3600.0)
    gone: list[str] = []
    freed = 0
    for path in _roots():
        image = _image(path, None)
        if not image.standard and image.unused_s >= unused_s:
            with _locked(path.with_suffix(".lock")):
                freed += image.bytes
                shutil.rmtree(path)
                _note(path).unlink(missing_ok=True)
            gone.append(image.name)
    freed += _sweep(unused_s)
    if client is not None:
        kept = {f"{REPOSITORY}:{path.name.removeprefix('root-')}" for path in _roots()}
        for tag in set(_tags(client)) - kept:
            with suppress(docker.errors.APIError):  # a box still runs on it
                client.images.remove(tag)
                gone = gone if tag in gone else [*gone, tag]
    return Pruned(gone, freed)


def _sweep(unused_s: float) -> int:
    """Remove half-made folders and locks without a folder, once they are old; how many bytes."""
    freed = 0
    for path in FOLDER.glob("part-*"):
        if time.time() - path.stat().st_mtime > unused_s:
            freed += _size(path)
            shutil.rmtree(path, ignore_errors=True)
    return freed


def _roots() -> list[Path]:
    return sorted(path for path in FOLDER.glob("root-*") if path.is_dir())


def _note(root: Path) -> Path:
    """Beside the folder, for a box has no use for it. Its time of change is when the image was last used."""
    return root.with_suffix(".json")


def _tags(client: docker.DockerClient) -> Iterator[str]:
    for image in client.api.images(name=REPOSITORY):
        yield from image["RepoTags"] or []


def _size(folder: Path) -> int:
    found = subprocess.run(["du", "-s", "--block-size=1", str(folder)], capture_output=True, check=False, timeout=120)
    return int((found.stdout.split() or [b"0"])[0])


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        flock(lock, LOCK_EX)
        yield
