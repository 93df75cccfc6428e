"""What waits to be trained on: each run once; what loops wait for."""

from datetime import UTC, datetime

import pytest

from lakehouse.governance import audit
from lakehouse.label import label
from lakehouse.records import Deployment, group_id
from lakehouse.selection.select import LoopStep, Selection, select
from lakehouse.waiting import loops, waiting
from lakehouse.write import Writer

GRPO = Selection(objective="grpo", rubrics=["search@2"], filter="grpo", policy_version=1, model_name="toy")


def deployment(version):
    return Deployment(
        deployment_id=f"d{version}", name="toy", version=version, engine_url="e", proof="{}", accepted=True, reason="",
        deployed_at=datetime(2026, 1, 1, tzinfo=UTC),
    )  # fmt: skip


@pytest.fixture
def played(lake, make):
    """Lands and judges two samples of a problem per outcome pair."""

    def play(run, *, loop=None, purpose="train", version=1, **outcomes):
        Writer(lake).append("problems", [make.problem(name) for name in outcomes])
        for name, ended in outcomes.items():
            for sample, outcome in enumerate(ended):
                intent = make.dispatch(name, sample, run=run, loop_id=loop, purpose=purpose)
                Writer(lake).append("dispatches", [intent])
                make.batch(name, sample, run=run, match=outcome, purpose=purpose, model_version=version).land(lake)
        label(lake, "search@2", max_unjudged=1)
        return lake

    return play


def test_groups_with_different_outcomes_wait_until_a_training_set_was_selected_over_their_run(played, lake, make):
    Writer(lake).append("model_versions", [make.version(1)])
    played("r", a=[True, False], b=[True, True])
    played("s", a=[True, False], b=[False, True])
    assert waiting(lake, "toy") == {"r": 1, "s": 2}
    select(lake, GRPO.model_copy(update={"run_ids": ["r"]}))
    assert waiting(lake, "toy") == {"s": 2}
    assert waiting(lake, "other") == {}


def test_loops_evaluations_and_what_is_too_old_do_not_wait(played, lake, make):
    played("loop", loop="L", a=[True, False])
    played("exam", purpose="eval:gate", b=[True, False])
    played("old", c=[True, False])
    assert waiting(lake, "toy") == {"old": 1}
    Writer(lake).append("model_versions", [make.version(1), make.version(2, 1), make.version(3, 2)])
    Writer(lake).append("deployments", [deployment(3)])
    assert waiting(lake, "toy") == {}
    assert waiting(lake, "toy", max_staleness=2) == {"old": 1}


def test_what_waits_is_as_old_as_the_steps_between_and_of_no_other_branch(played, lake, make):
    """Versions 2 and 3 were rolled back: 4 was trained from 1, one step later."""
    lineage = [make.version(1), make.version(2, 1), make.version(3, 2), make.version(4, 1)]
    Writer(lake).append("model_versions", lineage)
    Writer(lake).append("deployments", [deployment(4)])
    played("parent", a=[True, False])
    played("rolled-back", version=3, b=[True, False])
    assert waiting(lake, "toy", max_staleness=1) == {"parent": 1}
    assert waiting(lake, "toy", max_staleness=0) == {}


def test_a_loop_says_what_it_waits_for_and_since_when(played, lake, make):
    Writer(lake).append("model_versions", [make.version(1)])
    played("loop-1", loop="L", a=[True, False], b=[True, True])
    Writer(lake).append("dispatches", [make.dispatch("c", 0, run="loop-1", loop_id="L")])
    (loop,) = loops(lake)
    assert (loop.loop_id, loop.step, loop.waits_for) == ("L", 0, "episodes")
    assert (loop.begun, loop.in_flight, loop.settled, loop.consumed, loop.waiting) == (3, 1, 2, 0, 2)

    def seen():
        (loop,) = loops(lake)
        return loop.step, loop.waits_for, loop.version, loop.consumed

    names = [group_id("loop-1", name) for name in ("a", "b")]
    asked = GRPO.model_copy(update={"run_ids": [], "group_ids": names})
    step = select(lake, asked, LoopStep("L", 0))
    assert seen() == (1, "training", None, 2)
    version = make.version(2, 1).model_copy(update={"training_set_id": step.training_set_id})
    Writer(lake).append("model_versions", [version])
    assert seen() == (1, "deployment", 2, 2)
    Writer(lake).append("deployments", [deployment(2)])
    assert seen() == (1, "promotion", 2, 2)
    audit.note(lake, "move alias", "toy@challenger", {"from": None, "to": 2})
    assert seen() == (1, "episodes", 2, 2)
