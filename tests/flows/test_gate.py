"""A decision of the gate on the real stack: two versions that are nearly alike sit one exam, each served with proof."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tasks.registry.versions import CHAMPION, Registry
from tasks.serving import models
from tasks.serving.engine import Engine
from tests.flows.lookups import rows

pytestmark = [pytest.mark.stack, pytest.mark.engine, pytest.mark.timeout(1500)]

HEAD = 'when_refused = "ask"\nmin_pairs = 6\nmin_problems = 3\n[exam]\nproblems = {search = 4}\nsamples = 2\nmax_tokens = 24\n'
RULE = '[[rules]]\nmetric = "{}"\noperator = "{}"\nbound = {}\nwhy = "{}"\n'
EASY = RULE.format("success_difference_high", ">=", 0, "is worse") + RULE.format("proven", ">=", 1, "is not proven")
HARD = RULE.format("success_difference_low", ">=", 2, "cannot be")


@pytest.fixture(scope="module")
def policies(tmp_path_factory):
    """Files of a policy that this exam can pass, and of one that none can."""
    folder = tmp_path_factory.mktemp("policies")
    for name, rules in (("easy", EASY), ("hard", HARD)):
        (folder / f"{name}.toml").write_text(HEAD + "max_turns = 2\nmax_difficulty = 0.3\nseed = 5\n" + rules)
    return folder


@pytest.fixture(scope="module")
def base(stack, deployments):
    """The champion: the shipped weights, released by the radar alone."""
    folder = models.resolve(stack.model, stack.home) if stack.model in ("tiny", "smollm2") else _served_folder(stack)
    deployments.complete(deployments.start("release", folder=str(folder), stage="base"), deadline_s=600)
    return Registry(stack.mlflow_url).promoted(stack.model_name)


@pytest.fixture(scope="module")
def nudged(stack, deployments, base, policies):
    """The candidate, promoted through the gate: the champion's weights, each off by a thousandth."""
    registry = Registry(stack.mlflow_url)
    folder = stack.home.runs / "nudged" / "model"
    shutil.copytree(registry.version(stack.model_name, base).weights_path, folder)
    rng = np.random.default_rng(0)
    for file in folder.glob("*.safetensors"):
        weights = {
            name: (value * (1 + 1e-3 * rng.standard_normal(value.shape))).astype(value.dtype)
            for name, value in load_file(file).items()
        }
        save_file(weights, file, metadata={"format": "pt"})
    asked = {"folder": str(folder), "stage": "sft", "parent": base, "policy": str(policies / "easy.toml")}
    deployments.complete(deployments.start("release", **asked), deadline_s=900)
    return registry.promoted(stack.model_name)


def test_both_sit_the_same_problems_with_the_same_noise_and_the_decision_is_written_down(stack, base, nudged):
    assert nudged > base
    row = decision(nudged)
    told = json.loads(row["measurements"])
    assert (row["candidate"], row["champion"], row["passed"], row["reasons"]) == (nudged, base, True, [])
    assert told["values"]["total"]["pairs"] >= 6  # of 8: a busy machine may lose one, which is no loss of the policy
    assert "(release)" in row["decided_by"] or "(gate)" in row["decided_by"]
    runs = told["runs"]
    played = rows(f"""
        select problem_id, sample_index, list(model_version order by model_version) as versions,
            count(distinct calls.sampling ->> '$.seed') as seeds, any_value(calls.sampling ->> '$.seed') as seed,
            count(distinct completion_token_ids) as answers
        from evaluated inner join calls using (episode_id)
        where call_index = 0 and run_id in ('{runs["candidate"]}', '{runs["champion"]}')
        group by all
    """)
    both = [one for one in played if len(one["versions"]) == 2]
    assert len(both) >= 6
    assert all((one["versions"], one["seeds"]) == ([base, nudged], 1) for one in both)
    assert len({one["seed"] for one in played}) == len(played)
    assert sum(one["answers"] == 1 for one in both) >= 4  # with noise of its own, next to no answer would be the same


def test_mlflow_and_prefect_tell_the_same(stack, deployments, nudged):
    registry = Registry(stack.mlflow_url)
    row = decision(nudged)
    tags = registry.client.get_model_version(stack.model_name, str(nudged)).tags
    assert (tags["gate"], tags["gate_id"]) == ("passed", row["gate_id"])
    metrics = registry.client.get_run(registry.version(stack.model_name, nudged).run_id).data.metrics
    assert metrics["gate/pairs"] == json.loads(row["measurements"])["values"]["total"]["pairs"]
    assert metrics["gate/proven"] == 1
    title = f"# {stack.model_name} version {nudged} passes"
    (page,) = [one["data"] for one in deployments.artifacts() if one["key"] == "gate" and title in one["data"]]
    assert "| search | " in page and "🟢 holds" in page


def test_deciding_again_plays_nothing_and_a_refusal_is_status_1_with_the_reason(stack, command, base, nudged, policies):
    before = rows("select count(*) as n from episodes")
    ended = command("gate", str(base), "--policy", str(policies / "hard.toml"), "--json")
    out, err = ended.communicate(timeout=400)
    assert ended.returncode == 1, err
    decision = json.loads(out[out.index("{") :])
    assert (decision["candidate"], decision["champion"], decision["passed"]) == (base, nudged, False)
    assert decision["reasons"][0].startswith("success_difference_low >= 2: it is ")
    assert rows("select count(*) as n from episodes") == before
    with Engine(stack.engine) as engine:
        assert engine.served_version() == nudged
    assert Registry(stack.mlflow_url).promoted(stack.model_name, CHAMPION) == nudged


def test_the_champions_episodes_tell_of_the_candidate_before_it_plays(command, base, nudged):
    """A thousandth apart: nearly every episode counts, and weights are 1 but for chance."""
    run = json.loads(decision(nudged)["measurements"])["runs"]["champion"]
    ended = command("offpolicy", str(nudged), "--run-id", run, "--min-effective-samples", "4", "--json")
    out, err = ended.communicate(timeout=400)
    assert ended.returncode == 0, err
    found = json.loads(out[out.index("{") :])
    assert found["sampled_by"] == {str(base): found["episodes"]}
    assert 4 <= found["effective_samples"] <= found["episodes"] <= 8
    assert found["mean_weight"] == pytest.approx(1, abs=0.5)
    assert abs(found["divergence"]) < 0.05


def decision(candidate):
    (row,) = rows(f"from gates where candidate = {candidate}")
    return row


def _served_folder(stack):
    with Engine(stack.engine) as engine:
        return engine.folder()
