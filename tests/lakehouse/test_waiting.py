"""What waits to be trained on: each run once."""

import pytest

from lakehouse.label import label
from lakehouse.records import Deployment
from lakehouse.selection.select import Selection, select
from lakehouse.waiting import waiting
from lakehouse.write import Writer

GRPO = Selection(objective="grpo", rubrics=["search@2"], filter="grpo", policy_version=1, model_name="toy")


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
    deployed = Deployment(
        deployment_id="d", name="toy", version=3, engine_url="e", proof="{}", accepted=True, reason="",
        deployed_at=make.problem().created_at,
    )  # fmt: skip
    Writer(lake).append("deployments", [deployed])
    assert waiting(lake, "toy") == {}
    assert waiting(lake, "toy", max_staleness=2) == {"old": 1}
