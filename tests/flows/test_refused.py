"""Aliases that people move in MLflow to versions that may not be served: the real stack and the real engine."""

import json
import time

import pytest

from lakehouse import connect
from tasks.registry.moves import MOVED, OTHERS, REFUSED
from tasks.registry.versions import CHAMPION, Lineage

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


def test_a_move_by_the_ui_acts_within_a_minute_and_is_audited(good, stack):
    with connect() as connection:
        found = connection.execute(
            "select actor, detail from audit where action = $1 and object = $2 order by noted_at desc",
            [MOVED, f"{stack.model_name}@champion"],
        ).fetchone()
    assert (found[0], json.loads(found[1])["to"]) == (OTHERS, good)


def test_a_version_with_another_tokenizer_is_refused_said_and_not_tried_again(
    good, stack, registry, engine, deployments, source, with_other_tokenizer, tmp_path_factory
):
    other = with_other_tokenizer(source, tmp_path_factory.mktemp("other") / "model")
    version = registry.register(stack.model_name, other, lineage=Lineage(stage="other tokenizer"))
    move(registry, stack, version)

    def tags():
        return registry.client.get_model_version(stack.model_name, str(version)).tags

    wait(lambda: REFUSED in tags(), "the version was not refused", 150)
    assert "the tokenizer or chat template of" in tags()[REFUSED]
    assert engine.served_version() == good

    def told():
        pages = [one["data"] for one in deployments.artifacts() if one["key"] == "refused"]
        return any(f"version {version} is not served" in page and f"version {good} goes on" in page for page in pages)

    wait(told, "no page says so")
    wait(
        lambda: all(
            run["state_type"] not in ("PENDING", "RUNNING", "SCHEDULED") for run in deployments.runs("reconcile")
        ),
        "it runs on",
    )
    runs = len(deployments.runs("reconcile"))
    time.sleep(12)  # more than two looks of the watcher
    assert len(deployments.runs("reconcile")) == runs
    move(registry, stack, good)  # and back, which needs nothing
