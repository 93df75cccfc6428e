"""Rows with an image each: a real image that keeps a repository in `/testbed`, and a conda environment as SWE-bench's do."""

import io
import shutil
import tarfile

import pytest

from lakehouse.records import Problem
from sandboxes.backends import prepare
from sandboxes.backends.base import BackendUnavailable, BoxSpec
from sandboxes.backends.docker import connect
from sandboxes.backends.foreign import CONDA
from sandboxes.backends.images import docker_image
from sandboxes.problems.foreign import BadRow, Terms
from sandboxes.problems.swe.importing import images
from sandboxes.problems.swe.importing.imported import Order, Refused, imported
from sandboxes.problems.swe.spec import read_spec
from tests.sandboxes.problems.swe.importing.test_imported import swebench, swesmith

TERMS = Terms(
    name="mine", split="train", licence="MIT", allowed_uses=("training",), image="lakeloop-test:{instance_id}"
)


@pytest.fixture
def docker(docker_engine):
    try:
        return prepare("docker")
    except BackendUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def image(docker, clone):
    """Makes an image of the standard one and the clone: its commits, where it stands, and a module that is not in git."""
    client = connect()
    names = []

    def make(tag, *, history=True):
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w") as tar:
            tar.add(
                clone.repos / "rocks__pebble",
                "testbed",
                filter=lambda one: one if history or "/.git" not in one.name else None,
            )
            _add(tar, "testbed/pebble/_built.py", b"BUILT = 1\n")
            _add(tar, "testbed/pebble/__pycache__/core.cpython-311.pyc", b"stale")
            _add(tar, f"{CONDA}/python".lstrip("/"), b'#!/bin/sh\nexec /usr/bin/python3 "$@"\n', 0o755)
            _add(tar, f"{CONDA}/python3".lstrip("/"), b'#!/bin/sh\nexec /usr/bin/python3 "$@"\n', 0o755)
        container = client.containers.create(docker_image(client), ["true"], network_mode="none")
        try:
            container.put_archive("/", raw.getvalue())
            container.commit("lakeloop-test", tag)
        finally:
            container.remove(force=True)
        names.append(f"lakeloop-test:{tag}")

    yield make
    for name in names:
        client.images.remove(name, force=True)
    client.close()


def _add(tar, name, content, mode=0o644):
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


async def run(tmp_path, form, rows, backend, terms=TERMS):
    import json

    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [one async for one in imported(Order(form=form, path=path, terms=terms), backend)]


@pytest.mark.docker
async def test_a_row_becomes_a_problem_out_of_its_own_image(clone, image, docker, tmp_path):
    image("rocks_1776_pebble-7")
    (problem,) = await run(tmp_path, "swebench", [swebench(clone)], docker)
    assert isinstance(problem, Problem), problem
    assert problem.oracle_passed and problem.null_failed
    broken = read_spec(problem).broken()
    assert sorted(broken) == [
        "pebble/__init__.py",
        "pebble/_built.py",  # in no commit, and part of the tree
        "pebble/core.py",
        "setup.py",
        "tests/test_core.py",
    ]
    assert (
        b"exact" not in broken["pebble/core.py"]
    )  # the image stands at the repair, the row is about the commit before
    box = await docker.start(BoxSpec(image="lakeloop-test:rocks_1776_pebble-7"))
    found = await box.exec(["sh", "-c", "command -v python3"], timeout_s=20)
    await box.close()
    assert found.stdout.decode().strip() == f"{CONDA}/python3"


@pytest.mark.docker
async def test_a_tree_without_history_is_taken_as_it_lies(clone, image, docker, tmp_path):
    image("plain", history=False)
    row = swesmith(clone, image_name="lakeloop-test:plain")
    (problem,) = await run(tmp_path, "swesmith", [row], docker, TERMS.model_copy(update={"image": "{image_name}"}))
    assert isinstance(problem, Problem), problem
    assert "pebble/_built.py" in read_spec(problem).broken()


@pytest.mark.docker
async def test_what_an_image_lacks_is_told_by_row(clone, docker, tmp_path):
    (refused,) = await run(tmp_path, "swebench", [swebench(clone)], docker)
    assert isinstance(refused, Refused)
    assert (
        "no image lakeloop-test:rocks__pebble-7 or lakeloop-test:rocks_1776_pebble-7: `docker pull`" in refused.reason
    )
    other = TERMS.model_copy(update={"image": "x:{nope}"})
    (refused,) = await run(tmp_path, "swebench", [swebench(clone)], docker, other)
    assert "names the column 'nope', which this row has not" in refused.reason
    with pytest.raises(BadRow, match="or --image one image for each row"):
        await run(tmp_path, "swebench", [swebench(clone)], docker, TERMS.model_copy(update={"image": None}))


def test_a_root_file_system_is_read_where_there_is_no_docker(clone, tmp_path):
    class Folders:
        name = "bubblewrap"

    root = tmp_path / "rocks__pebble-7"
    shutil.copytree(clone.repos / "rocks__pebble", root / "testbed")
    (root / "testbed" / "pebble" / "_built.py").write_text("")
    where = images.image_of(str(tmp_path / "{instance_id}"), {"instance_id": "rocks__pebble-7"}, Folders())
    with images.clones_in(where, Folders()) as clones:
        tree = clones.tree(clones.find("rocks/pebble"), clone.base)
        assert {"pebble/core.py", "pebble/_built.py"} <= {*tree}
        assert not any(path.startswith(".git") for path in tree)
        assert b"exact" not in tree["pebble/core.py"]
    with pytest.raises(BadRow, match="has no /testbed"), images.clones_in(str(tmp_path / "nothing"), Folders()):
        pass
