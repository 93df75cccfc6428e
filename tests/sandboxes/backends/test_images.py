"""Images: the same packages are one image; one that is not there, or cannot be a box, is a clear error at once."""

import io
import json
import os
import shutil
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from sandboxes.backends import images, rootfs, tools_of
from sandboxes.backends.base import BackendUnavailable, BoxSpec
from sandboxes.backends.bubblewrap import Bubblewrap
from sandboxes.backends.docker import Docker
from sandboxes.backends.foreign import Unfit, work_tree
from sandboxes.backends.images import ImageMissing
from sandboxes.backends.rootfs import Recipe, RecipeError

LIBRARIES = "usr/lib/x86_64-linux-gnu"
FILES = ("usr/bin/dash", "usr/bin/cat", f"{LIBRARIES}/libc.so.6", f"{LIBRARIES}/ld-linux-x86-64.so.2")
LINKS = {"bin": "usr/bin", "lib": "usr/lib", "lib64": LIBRARIES, "usr/bin/sh": "dash"}


@pytest.fixture(scope="module")
def root():
    try:
        return images.root_filesystem().path
    except BackendUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def small(root):
    """A root file system of a shell and `cat`, without a Python and without our mount points, as a tar."""

    def pack(*leave_out):
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w") as tar:
            for name in FILES:
                _add(tar, name, (root / name).read_bytes(), 0o755)
            _add(tar, "testbed/pkg/a.py", b"print(1)\n", 0o644)
            for name in LINKS.keys() - set(leave_out):
                link = tarfile.TarInfo(name)
                link.type, link.linkname = tarfile.SYMTYPE, LINKS[name]
                tar.addfile(link)
        return raw.getvalue()

    return pack


def copy_of(root):
    """In place of mmdebstrap, which takes half a minute: what it made before."""
    return lambda to, _: subprocess.run(["cp", "-a", f"{root}/.", to], check=True, timeout=60)


def _add(tar, name, content, mode):
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


@pytest.fixture
def load(client):
    """Puts a tar into the engine as an image; removed afterwards."""
    names = []

    def import_(tar, tag, *changes):
        names.append(f"lakeloop-test:{tag}")
        client.api.import_image_from_data(tar, repository="lakeloop-test", tag=tag, changes=list(changes))
        return names[-1]

    yield import_
    for name in names:
        client.images.remove(name, force=True)


@pytest.fixture
def folder(small):
    """The same, unpacked where the boxes' uid can enter."""
    path = Path("/var/tmp") / f"lakeloop-test-{os.getpid()}"
    path.mkdir(mode=0o755)
    with tarfile.open(fileobj=io.BytesIO(small())) as tar:
        tar.extractall(path, filter="fully_trusted")
    yield path
    shutil.rmtree(path)


def test_the_same_packages_are_one_image_whatever_their_order():
    one = Recipe(("git", "make"), ("six==1.17.0", "idna==3.10"))
    assert one == Recipe(("make", "git", "git"), ("idna==3.10", "six==1.17.0"))
    others = [
        Recipe(),
        Recipe(("git",)),
        Recipe(python=("six==1.17.0",)),
        Recipe(("git", "make"), ("six==1.16.0", "idna==3.10")),
    ]
    assert len({recipe.name for recipe in [one, *others]}) == 5
    assert Recipe(("python3",)) == Recipe()  # every image has it


@pytest.mark.parametrize("debian", ["", "--help", "a b", "../x", "Git", "git=1 2"])
def test_what_is_no_debian_package_is_refused(debian):
    with pytest.raises(RecipeError, match="not a Debian package"):
        Recipe(debian=(debian,))


@pytest.mark.parametrize("python", ["six", "six>=1", "--index-url=x", "six==1.0 --x", "x @ file:///y", "-r r.txt", ""])
def test_a_python_package_needs_its_exact_version(python):
    with pytest.raises(RecipeError, match="write NAME==VERSION"):
        Recipe(python=(python,))


def test_python_packages_are_installed_into_the_root_file_system(root, tmp_path, monkeypatch):
    if os.geteuid() != 0:
        pytest.skip("only root makes images")
    monkeypatch.setattr(images, "FOLDER", tmp_path)
    monkeypatch.setattr(rootfs, "_debian", copy_of(root))
    said = []
    recipe = Recipe(python=("six==1.17.0",))
    made = images.root_filesystem(said.append, recipe)
    assert "six==1.17.0" in " ".join(said)
    assert rootfs.installed(made.path) == {"six": "1.17.0"}
    assert not (made.path / "wheels").exists()
    rootfs._inside(made.path, "/usr/bin/python3", "-c", "import six, pytest; assert six.PY3")
    said.clear()
    assert images.root_filesystem(said.append, recipe) == made
    assert said == []
    (image,) = images.listed(None)
    assert (image.name, image.python, image.standard, image.in_docker) == (recipe.name, ["six==1.17.0"], False, None)
    assert image.bytes > 50_000_000
    assert images.prune(None, unused_s=0).images == []  # it may have boxes
    long_ago = time.time() - 2 * 86_400
    os.utime(made.path.with_suffix(".json"), (long_ago, long_ago))
    (tmp_path / "part-dead").mkdir()
    os.utime(tmp_path / "part-dead", (long_ago, long_ago))
    assert images.prune(None, unused_s=86_400).images == [recipe.name]
    assert not made.path.exists()
    assert not (tmp_path / "part-dead").exists()


def test_a_build_that_fails_leaves_nothing_and_says_why(root, tmp_path, monkeypatch):
    if os.geteuid() != 0:
        pytest.skip("only root makes images")
    monkeypatch.setattr(images, "FOLDER", tmp_path)
    monkeypatch.setattr(rootfs, "_debian", copy_of(root))
    with pytest.raises(BackendUnavailable, match=r"six==0\.0\.0"):
        images.root_filesystem(recipe=Recipe(python=("six==0.0.0",)))
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


async def test_a_box_never_makes_an_image(backend, monkeypatch):
    monkeypatch.setattr(rootfs, "make", lambda *_: pytest.fail("an image was made while a box started"))
    recipe = Recipe(debian=("no-such-package",))
    with pytest.raises(ImageMissing, match="lakeloop images build --debian"):
        await backend.start(BoxSpec(image=recipe.name))


@pytest.mark.docker
async def test_an_image_of_somebody_else_needs_no_python_and_keeps_its_environment(client, load, small):
    name = load(small(), "small", "ENV COLOUR=red", "ENV PATH=/usr/bin", 'ENTRYPOINT ["/no-such-program"]')
    backend = Docker()
    assert await tools_of(backend, name) == {"sh": "/usr/bin/sh", "bash": "", "python3": "", "pytest": "", "git": ""}
    box = await backend.start(BoxSpec(image=name, files={"a": b"mine "}))
    assert (await box.exec(["sh", "-c", "cat a; echo $COLOUR"], timeout_s=20)).stdout == b"mine red\n"
    for path in ("/usr/bin/x", "/run/lakeloop/usr/bin/x", "/x"):
        assert (await box.exec(["sh", "-c", f"echo > {path}"], timeout_s=20)).exit_code != 0
    await box.close()
    assert work_tree(client, name, "/testbed") == {"pkg/a.py": b"print(1)\n"}
    with pytest.raises(FileNotFoundError, match="has no /nowhere"):
        work_tree(client, name, "/nowhere")


@pytest.mark.docker
async def test_an_image_that_cannot_be_a_box_says_what_it_lacks(client, load, small):
    backend = Docker()
    for name, error, said in (
        (load(small("usr/bin/sh"), "no-shell"), Unfit, "no working /bin/sh"),
        (load(small(), "volumes", "VOLUME /data"), Unfit, r"declares volumes \(/data\)"),
        ("lakeloop-test:absent", ImageMissing, "docker pull"),
    ):
        with pytest.raises(error, match=said):
            await backend.start(BoxSpec(image=name))
    left = [
        one for one in client.containers.list(all=True) if (one.attrs["Config"]["Image"]).startswith("lakeloop-test")
    ]
    assert left == []


@pytest.mark.bubblewrap
async def test_a_folder_of_somebody_else_needs_neither_a_python_nor_our_mount_points(folder):
    try:
        backend = Bubblewrap()
    except BackendUnavailable as reason:
        pytest.skip(str(reason))
    before = sorted(path.name for path in folder.iterdir())
    box = await backend.start(BoxSpec(image=str(folder), files={"a": b"mine"}))
    said = await box.exec(["sh", "-c", "cat a /testbed/pkg/a.py"], timeout_s=20)
    assert (said.stdout, said.exit_code) == (b"mine", 1)  # the work tree is the box's own
    for path in ("/usr/bin/x", "/run/lakeloop/usr/bin/x", "/x", "/dev/x"):
        assert (await box.exec(["sh", "-c", f"echo > {path}"], timeout_s=20)).exit_code != 0
    await box.close()
    assert sorted(path.name for path in folder.iterdir()) == before
    (folder / "usr/bin/sh").unlink()
    with pytest.raises(Unfit, match="no /bin/sh"):
        await backend.start(BoxSpec(image=str(folder)))
    with pytest.raises(ImageMissing, match="absolute path"):
        await backend.start(BoxSpec(image="/no/such/folder"))


def test_the_note_of_an_image_says_what_is_in_it(root):
    note = root.with_suffix(".json")
    if note.exists():
        assert json.loads(note.read_text()) == {"debian": [], "python": [], "installed": {}}
