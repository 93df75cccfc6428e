"""Aliases that people move in MLflow to versions that may not be served: the real stack and the real engine."""

import json
import re
import shutil
import time

import pytest

from lakehouse import connect
from tasks.registry.moves import MOVED, OTHERS, REFUSED
from tasks.registry.versions import CHAMPION, TAINTED, Lineage

pytestmark = [pytest.mark.stack, pytest.mark.engine, pytest.mark.timeout(600)]

ACTS_WITHIN_S = 60


@pytest.fixture(scope="module")
def good(stack, registry, engine, source):
    """A version that was moved to in MLflow and is served."""
    version = registry.register(stack.model_name, source, lineage=Lineage(stage="aliases"))
    move(registry, stack, version)
    wait(lambda: engine.served_version() == version, "the version was not deployed", 150)
    return version


def move(registry, stack, version):
    registry.client.set_registered_model_alias(stack.model_name, CHAMPION, str(version))


def wait(done, what, deadline_s=ACTS_WITHIN_S):
    deadline = time.monotonic() + deadline_s
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.3)


def refused(registry, stack, version):
    """The reason that the version's tag gives, waited for."""

    def tags():
        return registry.client.get_model_version(stack.model_name, str(version)).tags

    wait(lambda: REFUSED in tags(), "the version was not refused", 150)
    return tags()[REFUSED]


def said(deployments, version, good):
    """Whether a page of the UI tells of the refusal."""
    pages = [one["data"] for one in deployments.artifacts() if one["key"] == "refused"]
    return any(f"version {version} is not served" in page and f"version {good} goes on" in page for page in pages)


def test_a_move_by_the_ui_acts_within_a_minute_and_is_audited(good, stack):
    with connect() as connection:
        found = connection.execute(
            "select actor, detail from audit where action = $1 and object = $2 order by noted_at desc",
            [MOVED, f"{stack.model_name}@champion"],
        ).fetchone()
    assert (found[0], json.loads(found[1])["to"]) == (OTHERS, good)


@pytest.mark.parametrize(
    ("harm", "why"),
    [("gone", "are gone|holds no config.json|not there|[Nn]o such"), ("tainted", "is tainted: erasure er-1")],
)
def test_a_version_whose_files_are_gone_or_that_is_tainted_is_refused_and_the_old_one_goes_on(
    good, stack, registry, engine, deployments, source, tmp_path, harm, why
):
    folder = shutil.copytree(source, tmp_path / "model")
    version = registry.register(stack.model_name, folder, lineage=Lineage(stage=harm))
    if harm == "gone":
        shutil.rmtree(registry.version(stack.model_name, version).weights_path)
    else:
        registry.tag(stack.model_name, version, TAINTED, "er-1")
    move(registry, stack, version)

    assert re.search(why, refused(registry, stack, version))
    assert engine.served_version() == good

    wait(lambda: said(deployments, version, good), "no page says so")
    move(registry, stack, good)  # and back, which needs nothing


def test_two_releases_at_once_are_put_out_one_after_the_other_and_what_is_promoted_is_served(
    good, stack, registry, engine, deployments, source, tmp_path
):
    folders = [shutil.copytree(source, tmp_path / name) for name in ("one", "two")]
    runs = [deployments.start("release", folder=str(one), stage=f"at once {n}") for n, one in enumerate(folders)]
    deployments.complete(*runs)
    with connect() as connection:
        served = connection.execute(
            "select version, accepted from deployments where version > $1 order by deployed_at", [good]
        ).fetchall()
        moved = connection.execute(
            "select (detail ->> '$.to')::bigint from audit where action = $1 and actor like '%(release)' order by noted_at",
            [MOVED],
        ).fetchall()
    assert len(served) == 2 and all(accepted for _, accepted in served)
    assert [version for version, _ in served] == [version for (version,) in moved[-2:]]
    assert registry.promoted(stack.model_name) == engine.served_version() == served[-1][0]
    move(registry, stack, good)
    wait(lambda: engine.served_version() == good, "the version was not deployed", 150)


def test_a_version_with_another_tokenizer_is_refused_said_and_not_tried_again(
    good, stack, registry, engine, deployments, source, with_other_tokenizer, tmp_path_factory
):
    other = with_other_tokenizer(source, tmp_path_factory.mktemp("other") / "model")
    version = registry.register(stack.model_name, other, lineage=Lineage(stage="other tokenizer"))
    move(registry, stack, version)

    assert "the tokenizer or chat template of" in refused(registry, stack, version)
    assert engine.served_version() == good

    wait(lambda: said(deployments, version, good), "no page says so")
    under_way = ("PENDING", "RUNNING", "SCHEDULED")
    wait(lambda: not [run for run in deployments.runs("reconcile") if run["state_type"] in under_way], "it runs on")
    runs = len(deployments.runs("reconcile"))
    time.sleep(12)  # more than two looks of the watcher
    assert len(deployments.runs("reconcile")) == runs
    move(registry, stack, good)  # and back, which needs nothing
