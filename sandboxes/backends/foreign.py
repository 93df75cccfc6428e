"""Images that somebody else made, by name: what they must be, and how the runner lives in them.

The runner brings its own Python: the standard root file system is shown read-only under `/run/lakeloop`, and its Python is
started by its own loader, so an image needs neither a Python nor a libc that fits. It needs `/bin/sh` and the machine's
architecture; anything else is for its problems to want.
"""

import io
import os
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import docker
import docker.errors
from docker.models.containers import Container

from sandboxes.backends.base import Box, SandboxError
from sandboxes.backends.client import BASE_ENV
from sandboxes.backends.images import ImageMissing

MOUNT = "/run/lakeloop"
LIBRARIES = f"{MOUNT}/usr/lib/x86_64-linux-gnu"
PYTHON = (f"{LIBRARIES}/ld-linux-x86-64.so.2", "--library-path", LIBRARIES, f"{MOUNT}/usr/bin/python3.11")
ARCHITECTURE = "amd64"
CONDA = "/opt/miniconda3/envs/testbed/bin"  # SWE-bench's images put it on PATH in a file that only login shells read
OWN = ("dev", "home", "proc", "run", "sys", "testbed", "tmp")  # folders of `/` that are the box's, not the image's
TREE_BYTES = 1 << 30


class Unfit(SandboxError):
    """An image that cannot be a box. The text says what it lacks."""


@dataclass(frozen=True)
class Foreign:
    """An image that can be a box. `env` is what its commands have unless a `BoxSpec` says otherwise."""

    name: str
    env: Mapping[str, str] = field(default_factory=dict)


def in_docker(client: docker.DockerClient, name: str) -> Foreign:
    """An image the engine has. ImageMissing, or Unfit with what is wrong with it."""
    try:
        config = client.images.get(name).attrs
    except docker.errors.ImageNotFound as error:
        raise ImageMissing(
            f"the Docker engine has no image {name}: `docker pull` or `docker load` it first; boxes never fetch any"
        ) from error
    if (config["Os"], config["Architecture"]) != ("linux", ARCHITECTURE):
        raise Unfit(f"the image {name} is for {config['Os']}/{config['Architecture']}, not linux/{ARCHITECTURE}")
    said = config.get("Config") or {}
    if said.get("Volumes"):
        raise Unfit(
            f"the image {name} declares volumes ({', '.join(said['Volumes'])}), which would be disks without a limit: "
            "build it without VOLUME"
        )
    pairs = (text.partition("=") for text in said.get("Env") or [])
    return Foreign(name, {key: value for key, _, value in pairs})


def with_conda(image: Foreign, container: Container) -> Foreign:
    """The image with SWE-bench's environment first on its PATH, where it has one. `container` is one made of it."""
    try:
        container.get_archive(f"{CONDA}/python")[0].close()
    except docker.errors.NotFound:
        return image
    return _conda_first(image)


def _conda_first(image: Foreign) -> Foreign:
    return replace(image, env={**image.env, "PATH": f"{CONDA}:{image.env.get('PATH', BASE_ENV['PATH'])}"})


def in_folder(path: str) -> Foreign:
    """A root file system unpacked on this machine, for bubblewrap. ImageMissing, or Unfit with what is wrong with it."""
    root = Path(path)
    if not root.is_absolute() or not root.is_dir():
        raise ImageMissing(f"{path} is not the absolute path of a folder with a root file system")
    if not os.path.lexists(root / "bin/sh"):
        raise Unfit(f"the root file system {path} has no /bin/sh")
    image = Foreign(path)
    return _conda_first(image) if os.path.lexists(f"{path}{CONDA}/python") else image


async def must_have_shell(box: Box, name: str) -> None:
    """Unfit where commands could not be run by a shell, which every agent does."""
    done = await box.exec(["/bin/sh", "-c", ":"], timeout_s=30.0)
    if done.exit_code != 0:
        raise Unfit(f"the image {name} has no working /bin/sh: {done.stderr.decode(errors='replace')[:300].strip()}")


def binds(root: Path) -> list[str]:
    """bubblewrap's options for a folder that need not have our mount points: its parts, read-only, on an empty `/`."""
    options: list[str] = []
    for entry in sorted(os.scandir(root), key=lambda entry: entry.name):
        if entry.name in OWN:
            continue
        if entry.is_symlink():
            options += ["--symlink", str(Path(entry.path).readlink()), f"/{entry.name}"]
        else:
            options += ["--ro-bind", entry.path, f"/{entry.name}"]
    return options


def work_tree(client: docker.DockerClient, name: str, folder: str) -> dict[str, bytes]:
    """The regular files below a folder of an image, as importers of SWE-bench-style images need them: path -> content.

    FileNotFoundError where the image has no such folder, Unfit where it holds more than 1 GiB. Links are left out.
    """
    container = client.containers.create(in_docker(client, name).name, "true", network_mode="none")
    try:
        pieces, _ = container.get_archive(folder)
        raw = io.BytesIO()
        for piece in pieces:
            raw.write(piece)
            if raw.tell() > TREE_BYTES:
                raise Unfit(f"{folder} of the image {name} holds more than {TREE_BYTES >> 30} GiB")
    except docker.errors.NotFound as error:
        raise FileNotFoundError(f"the image {name} has no {folder}") from error
    finally:
        container.remove(force=True, v=True)
    raw.seek(0)
    tree: dict[str, bytes] = {}
    with tarfile.open(fileobj=raw) as tar:
        for member in tar:
            path = member.name.partition("/")[2]
            content = tar.extractfile(member) if member.isreg() and path else None
            if content is not None:
                tree[path] = content.read()
    return dict(sorted(tree.items()))
