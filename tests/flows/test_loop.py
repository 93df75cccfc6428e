"""The whole loop on real servers, with the real engine and the shipped tiny weights.

Each fixture is a stage and builds on the one before. Stages run as deployments, started through Prefect's API as the UI does
it; the demonstrations come from a command that is killed half-way and run again.
"""

import json
import re
import time
from pathlib import Path

import psutil
import pytest

from tasks.registry.versions import CHAMPION, Lineage
from tasks.training.folder import PROBE, SUMMARY
from tests.flows.lookups import promote_and_wait, rows, wait_until_served
from tests.flows.scripts import LOAD, SPANS

pytestmark = [pytest.mark.stack, pytest.mark.engine, pytest.mark.timeout(1500)]

SEED = 11
PROBLEMS = 8  # demonstrated
EASY = 0.3  # questions of three calls: search, open, answer
EPOCHS = 12  # the demonstrations are learnt by heart, but not quite
NOISY = 1.3  # the temperature at which some samples of such a problem solve it and some do not
MORE = ("more",)  # runs of demonstrations beside `demo`
DEMONSTRATION = {"agent": "expert", "purpose": "demonstration", "samples": 1, "max_difficulty": EASY}
LOOP = {"mode": "async", "staleness": 1, "rounds": 2, "problems": {"search": PROBLEMS}, "samples": 6, "seed": SEED - 1}
LOOP |= {"max_difficulty": EASY, "temperature": NOISY, "concurrency": 2}  # 2: a batch outlasts a step's training
REDEPLOYED_S = 60
LENIENT = """
when_refused = "roll_back"
min_pairs = 2
[[rules]]
metric = "success"
operator = ">="
bound = 0.0
"""
REFUSING = LENIENT.replace("bound = 0.0", "bound = 1.5")


@pytest.fixture(scope="module")
def base(stack, registry, engine, source):
    """The version of the weights to start from, promoted and served: the watcher saw to that."""
    version = registry.register(stack.model_name, source, lineage=Lineage(stage="base"))
    promote_and_wait(registry, engine, stack.model_name, version)
    return version


@pytest.fixture(scope="module")
def demonstrated(command, deployments, base):
    """Demonstrations by a run that was killed half-way and continued: the landed rows at the kill, and at the end.

    Beside it other runs show the problems of the loops' next waves.
    """
    more = [
        deployments.start("collect", **DEMONSTRATION, problems={"search": PROBLEMS}, seed=SEED + n, run_id=run)
        for n, run in enumerate(MORE, start=1)
    ]
    arguments = ["collect", "--run-id", "demo", "--agent", "expert", "--purpose", "demonstration", "--samples", "1"]
    arguments += ["--problems", json.dumps({"search": PROBLEMS}), "--seed", str(SEED), "--shard-size", "1"]
    arguments += ["--max-difficulty", str(EASY)]
    first = command(*arguments)
    deadline = time.monotonic() + 120
    while not (landed := rows("from episodes where run_id = 'demo'")):
        assert first.poll() is None, first.communicate()
        assert time.monotonic() < deadline, "no shard landed"
        time.sleep(0.05)
    first.kill()
    first.wait()
    landed = rows("from episodes where run_id = 'demo'")
    second = command(*arguments)
    out, err = second.communicate(timeout=400)
    assert second.returncode == 0, err
    deployments.complete(*more)
    return landed, rows("from episodes where run_id = 'demo'"), json.loads(out[out.index("{") :])


@pytest.fixture(scope="module")
def warm(stack, deployments, registry, demonstrated, base):
    """The version trained on the demonstrations."""
    deployments.complete(deployments.start("label", rubrics=["search@2"], run_ids=["demo", *MORE]))
    train = {
        "objective": "sft",
        "run_ids": ["demo", *MORE],
        "rubrics": ["search@2"],
        "epochs": EPOCHS,
        "minibatch": PROBLEMS,
        "ranks": 1,
    }
    deployments.complete(deployments.start("train", **train))
    (made,) = rows("from training_sets where objective = 'sft'")
    (folder,) = stack.home.runs.glob("sft-*/model")
    summary = json.loads((folder / SUMMARY).read_text())
    release = {"folder": str(folder), "stage": "sft", "parent": base, "training_set_id": made["training_set_id"]}
    deployments.complete(deployments.start("release", **release, mlflow_run_id=summary["mlflow_run"]))
    return registry.promoted(stack.model_name)


@pytest.fixture(scope="module")
def sampled(deployments, warm):
    """Episodes of the trained version. Several deployments run at a time."""
    policy = {"problems": {"search": 3}, "samples": 2, "seed": SEED, "max_difficulty": EASY, "run_id": "policy"}
    deployments.complete(
        deployments.start("collect", **policy),
        deployments.start("evaluate", stage="test", problems={"search": 4}),
        deployments.start("maintain"),
        deployments.start("reap"),
    )
    return rows("from episodes where run_id = 'policy'")


@pytest.fixture(scope="module")
def taught(stack, deployments, registry, sampled, improved, warm):
    """A version distilled from the improved one through adapters, on what its parent had sampled; proven, not promoted."""
    learn = {"objective": "distill", "teacher": improved, "parent": warm, "run_ids": ["policy"], "lora": 4, "ranks": 1}
    deployments.complete(deployments.start("label", rubrics=["search@2"], run_ids=["policy"]))
    deployments.complete(deployments.start("train", **learn))
    (made,) = rows("from training_sets where objective = 'distill'")
    (folder,) = stack.home.runs.glob("distill-*/model")
    release = {"folder": str(folder), "stage": "distill", "parent": warm, "training_set_id": made["training_set_id"]}
    deployments.complete(deployments.start("release", **release, alias="challenger"))
    return registry.promoted(stack.model_name, "challenger")


@pytest.fixture(scope="module")
def improved(stack, deployments, registry, sampled, tmp_path_factory):
    """The version after two steps of a loop that does not wait, on what was demonstrated."""
    policy = tmp_path_factory.mktemp("gate") / "lenient.toml"
    policy.write_text(LENIENT)
    judged = {"evaluate_problems": {"search": 4}, "evaluate_every": 2, "policy": str(policy)}
    deployments.complete(deployments.start("improve", loop_id="loop", **judged, **LOOP))
    return registry.promoted(stack.model_name)


def test_promoting_a_version_deploys_it_through_the_reconcile_deployment(base, deployments, engine):
    assert engine.served_version() == base
    run = max(deployments.runs("reconcile"), key=lambda one: one["created"])  # other tests of this stack had theirs
    deployments.complete(run["id"])
    deployed = rows(f"from deployments where version = {base}")
    assert deployed and all(one["accepted"] for one in deployed)


def test_rounds_without_a_trainable_group_are_passed_over_and_end_in_the_reasons(command, registry, stack, base):
    """The base weights solve nothing, so every group is of one outcome."""
    drawn = ["--problems", '{"search": 1}', "--samples", "2", "--evaluate-problems", '{"search": 16}']
    ended = command("improve", "--rounds", "2", *drawn, "--max-tokens", "24", "--max-turns", "2")
    out, err = ended.communicate(timeout=400)
    assert ended.returncode == 1, out
    said = " ".join(err.split())
    assert "no group of any round (2) could be trained on: 4 zero_variance_group. " in said
    assert "take more problems or samples" in said
    assert "Traceback" not in out + err
    played = rows(
        "select run_id, count(*) as n, max(n_calls) as turns from episodes where purpose = 'train' group by all"
    )
    assert [one["n"] for one in played] == [2, 2]  # the second round went on, with other problems
    assert max(one["turns"] for one in played) <= 2
    assert rows("from episodes where purpose like 'eval:round%'") == []
    assert registry.promoted(stack.model_name) == base


@pytest.mark.bubblewrap
def test_reap_removes_boxes_past_their_lease(command, stack, boxes):
    late, early = boxes
    ended = command("reap")
    out, err = ended.communicate(timeout=400)
    assert ended.returncode == 0, out + err
    assert not any(folder.exists() for folder in late.folders)
    assert all(folder.exists() for folder in early.folders)


def test_a_killed_collect_continues_where_it_was_and_no_episode_is_there_twice(demonstrated):
    before, after, collected = demonstrated
    assert 0 < len(before) < PROBLEMS == len(after)
    assert collected["run_id"] == "demo"
    assert collected["landed"] == PROBLEMS - len(before)
    assert collected["statuses"] == {"ok": PROBLEMS - len(before)}
    assert [row for row in after if row["episode_id"] in {one["episode_id"] for one in before}] == before
    dispatched = rows("select episode_id from dispatches where run_id = 'demo'")
    assert sorted(one["episode_id"] for one in dispatched) == [one["episode_id"] for one in after]
    attempts = rows("select episode_id, attempt_id from calls group by all having episode_id in (select episode_id from "
                    "episodes where run_id = 'demo') order by all")  # fmt: skip
    assert attempts == [{name: one[name] for name in ("episode_id", "attempt_id")} for one in after]


def test_a_release_is_registered_with_its_lineage_promoted_and_served(stack, registry, engine, warm, base):
    found = registry.version(stack.model_name, warm)
    (made,) = rows("from training_sets where objective = 'sft'")
    assert warm > base
    assert found.aliases == [CHAMPION]
    assert (found.lineage.stage, found.lineage.parent) == ("sft", base)
    assert found.lineage.training_set == made["training_set_id"]
    assert found.lineage.lake_versions == json.loads(made["table_versions"])
    assert found.lineage.rubrics == ["search@2"]
    assert found.lineage.commit is None or re.fullmatch(r"[0-9a-f]{40}", found.lineage.commit)
    assert registry.client.get_run(found.run_id).data.metrics["loss"] > 0
    (held,) = rows(f"from model_versions where version = {warm}")
    assert (held["weights_digest"], held["mlflow_run_id"]) == (found.weight_digest, found.run_id)
    deployed = rows(f"from deployments where version = {warm}")
    assert [one["accepted"] for one in deployed] == [True]


def test_the_promoted_version_loads_from_the_server_and_scores_its_probes_as_the_trainer_did(
    stack, registry, warm, with_weights
):
    """As anybody does it who has the server's address; the weights are on the disk once all the same."""
    held = registry.version(stack.model_name, warm)
    told = with_weights(LOAD, f"models:/{stack.model_name}@{CHAMPION}", str(held.weights_path / PROBE))
    assert told["dtype"] == "torch.float32"
    assert told["tokens"] > 100
    assert told["apart"] < 1e-4
    (weights,) = held.weights_path.glob("*.safetensors")
    (place,) = stack.home.artifacts.glob(f"*/{held.run_id}/artifacts/model/model/{weights.name}")
    assert place.samefile(weights)


def test_the_model_card_is_the_description_and_says_what_made_the_version(stack, registry, deployments, warm, base):
    told = registry.client.get_model_version(stack.model_name, str(warm)).description
    (made,) = rows("from training_sets where objective = 'sft'")
    title, origin = f"# {stack.model_name} version {warm}", f"trained from version {base}"
    assert all(said in told for said in (title, origin, made["training_set_id"], "search@2"))
    assert "| loss per trained token |" in told
    assert "accepted" in told.partition("## Training data")[0]  # the proof of its deployment


def test_the_next_calls_are_sampled_from_the_released_version(sampled, warm):
    assert len(sampled) == 6
    assert {one["model_version"] for one in sampled} == {warm}
    calls = rows("from calls where episode_id in (select episode_id from episodes where run_id = 'policy')")
    assert calls
    assert {version for call in calls for version in call["weight_versions"]} == {warm}
    assert {call["token_status"] for call in calls} == {"exact"}
    assert all(len(call["logprobs"]) == len(call["completion_token_ids"]) for call in calls)


def test_an_evaluation_is_of_held_out_problems_and_judged(sampled, warm):
    (found,) = rows("""
        select count(*) as n, count(reward) as judged, list(distinct split) as splits, list(distinct model_version) as versions
        from episodes left join latest_rewards using (episode_id) where purpose = 'eval:test'
    """)
    assert found == {"n": 4, "judged": 4, "splits": ["eval"], "versions": [warm]}


def test_steps_train_on_groups_whose_outcomes_differ_and_each_on_the_version_before(
    stack, registry, engine, improved, warm
):
    made = rows("select * from training_sets where objective = 'grpo' and n_rows > 0 order by loop_step")
    (spread,) = rows("""
        select count(distinct group_id) as groups, min(abs(advantage)) as least, count(distinct training_set_id) as sets
        from training_rows inner join training_sets using (training_set_id) where objective = 'grpo'
    """)
    assert [one["policy_version"] for one in made] == [warm, warm + 1]
    assert spread["groups"] >= spread["sets"] == 2 and spread["least"] > 0
    found = registry.version(stack.model_name, improved)
    assert (found.lineage.stage, found.lineage.parent) == ("grpo", warm + 1)
    assert engine.served_version() == improved == warm + 2


def test_what_a_loop_trains_on_is_as_young_as_it_may_be_and_each_group_is_in_one_step(improved):
    steps = rows("select * from queries.loop_steps where loop_id = 'loop' order by step")
    assert [one["step"] for one in steps] == [1, 2]
    assert max(one["max_staleness"] for one in steps) <= 1
    groups = rows(
        "select unnest((selection -> '$.asked.group_ids')::varchar[]) as name from training_sets where loop_id = 'loop'"
    )
    assert len({one["name"] for one in groups}) == len(groups) == 2 * PROBLEMS
    (left,) = rows("select * from queries.loop_groups where loop_id = 'loop'")
    assert (left["begun"], left["consumed"], left["left_to_play"]) == (len(groups), len(groups), 0)


def test_episodes_are_played_while_the_first_step_is_trained(improved):
    """Between the choice of its rows and its version's registration; what was in flight then is of the second batch."""
    (found,) = rows("""
        select count(*) as n, count(*) filter (started_at < made and ended_at > chosen) as meanwhile
        from training_rows
        inner join training_sets using (training_set_id)
        inner join episodes using (episode_id)
        cross join (
            select training_sets.created_at as chosen, model_versions.created_at as made
            from model_versions inner join training_sets using (training_set_id)
            where training_sets.loop_id = 'loop' and loop_step = 0
        )
        where training_sets.loop_id = 'loop' and training_sets.loop_step = 1
    """)
    assert found["n"] >= found["meanwhile"] > 0


def test_a_loop_moves_the_challenger_and_the_gate_the_champion(improved, warm):
    moves = rows("""
        select object.split('@')[2] as alias, (detail ->> '$.to')::bigint as version, (detail ->> '$.evidence.gate_id') as gate
        from audit where action = 'move alias' and actor like '%(improve)' or action = 'move alias' and actor like '%(release)'
        order by noted_at
    """)
    mine = [(one["alias"], one["version"]) for one in moves if one["version"] > warm]
    assert mine == [("challenger", warm + 1), ("challenger", warm + 2), ("champion", warm + 2)]
    (decided,) = rows(f"from gates where candidate = {warm + 2}")
    assert (decided["passed"], decided["candidate"], decided["champion"]) == (True, warm + 2, warm)
    assert moves[-1]["gate"] == decided["gate_id"]


def test_adapters_merged_into_the_weights_are_proven_in_the_engine(taught):
    (deployed,) = rows(f"from deployments where version = {taught}")
    assert deployed["accepted"], deployed["reason"]
    (folder,) = {one["weights_path"] for one in rows(f"from model_versions where version = {taught}")}
    assert json.loads((Path(folder) / SUMMARY).read_text())["tokens_trained"] > 0


def test_a_version_that_was_taught_by_another_comes_from_both(stack, registry, taught, improved, warm):
    (held,) = rows(f"from model_versions where version = {taught}")
    assert (held["parent_version"], held["learnt_from"]) == (warm, [f"{stack.model_name}@{improved}"])
    assert registry.version(stack.model_name, taught).lineage.learnt_from == held["learnt_from"]
    (row,) = rows(f"from descent where version = {taught} and from_version = {improved}")
    assert row["distance"] == 1
    (folder,) = stack.home.runs.glob("distill-*/model")
    assert json.loads((folder / SUMMARY).read_text())["last_step"]["kl_to_teacher"] != 0


def test_demonstrations_are_nothing_to_improve_on_and_the_error_says_so(command, improved):
    train = command("train", "--objective", "grpo", "--run-ids", '["demo"]', "--rubrics", '["search@2"]')
    out, err = train.communicate(timeout=400)
    assert train.returncode == 1
    said = " ".join(err.split())
    assert f"nothing to train on with filter 'grpo': {PROBLEMS} not_policy." in said
    assert "Traceback" not in out + err


def test_a_trainer_that_takes_too_long_is_ended(stack, command, improved):
    train = ["train", "--objective", "sft", "--run-ids", '["demo"]', "--deadline-s", "2", "--ranks", "1"]
    late = command(*train, "--rubrics", '["search@2"]')
    _, err = late.communicate(timeout=400)
    assert late.returncode == 1
    assert "error: the trainer took longer than 2 s" in " ".join(err.split())
    assert "Traceback" not in err
    trainers = [one for one in psutil.process_iter(["cmdline"]) if str(stack.home.runs) in str(one.info["cmdline"])]
    assert trainers == []


def test_runs_leave_progress_tables_and_links_in_the_ui(deployments, improved):
    made = deployments.artifacts()
    assert {one["type"] for one in made} >= {"progress", "table", "markdown"}
    kept = {one["key"] for one in made if one["key"]}
    assert kept >= {"episodes", "rewards", "token-ledger", "evaluation", "compaction"}
    assert kept >= {"model-version", "weight-sync-proof", "mlflow-run", "learning"}
    completed = {
        run["id"] for name in ("collect", "train") for run in deployments.runs(name) if run["state_type"] == "COMPLETED"
    }
    progress = [one for one in made if one["type"] == "progress" and one["flow_run_id"] in completed]
    assert {one["description"] for one in progress} >= {"collecting eval:test", "collecting train", "training grpo"}
    assert {one["data"] for one in progress} == {100}


@pytest.fixture(scope="module")
def moved_back(stack, registry, engine, command, improved, warm):
    """The seconds that a move of the alias to an earlier version took, in the middle of a run that samples without a pause."""
    # A challenger was, for a test before: nobody plays it, so the watcher moves back.
    wait_until_served(engine, stack.model_name, improved)
    drawn = ["--problems", '{"search": 24}', "--samples", "24", "--max-difficulty", str(EASY)]
    drawn += ["--temperature", str(NOISY), "--concurrency", "48", "--shard-size", "576"]  # calls last
    playing = command("collect", "--run-id", "spanned", *drawn)
    deadline = time.monotonic() + 120
    while not rows("from dispatches where run_id = 'spanned'"):
        assert playing.poll() is None and time.monotonic() < deadline, "nothing is played"
        time.sleep(0.2)
    seconds = promote_and_wait(registry, engine, stack.model_name, warm)
    assert playing.poll() is None, "it ended before the swap: draw more problems"
    _, err = playing.communicate(timeout=400)
    assert playing.returncode == 0, err
    return seconds


def test_moving_the_alias_back_redeploys_the_earlier_version(moved_back, warm):
    assert moved_back < REDEPLOYED_S
    deadline = time.monotonic() + 60
    while len(deployed := rows(f"from deployments where version = {warm}")) < 2:  # written once it is proven
        assert time.monotonic() < deadline, "the deployment was not written down"
        time.sleep(0.2)
    assert [one["accepted"] for one in deployed] == [True, True]


def test_a_call_that_was_generating_when_weights_were_swapped_has_tokens_of_both_and_the_log_probs_of_each(
    registry, stack, moved_back, improved, warm, with_weights
):
    """The version of each token is a claim, which is scored here: by the weights that it names, and by the others."""
    spanning = rows("""
        select prompt_token_ids as prompt, completion_token_ids as completion, logprobs, weight_versions as versions
        from calls inner join episodes using (episode_id)
        where run_id = 'spanned' and list_min(weight_versions) < list_max(weight_versions)
    """)
    assert spanning
    for call in spanning:
        before = call["versions"].index(warm)
        assert call["versions"] == [improved] * before + [warm] * (len(call["completion"]) - before)
    folders = {one: str(registry.version(stack.model_name, one).weights_path) for one in (improved, warm)}
    apart = with_weights(SPANS, given=json.dumps([spanning, folders, NOISY]))
    print(len(spanning), apart)
    assert apart["right"] < 1e-3 and apart["most"] < 2e-2
    assert apart["wrong"] > 3 * apart["right"]


@pytest.fixture(scope="module")
def rejected(deployments, moved_back, tmp_path_factory):
    """The versions of a loop whose gate refuses everything: each step goes on from the champion."""
    policy = tmp_path_factory.mktemp("gate") / "refusing.toml"
    policy.write_text(REFUSING)
    judged = {"evaluate_problems": {"search": 2}, "evaluate_every": 1, "policy": str(policy)}
    quick = LOOP | {"concurrency": 8}
    deployments.complete(deployments.start("improve", loop_id="refused", **judged, **quick))
    made = rows("from queries.loop_steps where loop_id = 'refused' and version > 0 order by step")
    return [one["version"] for one in made]


def test_what_the_gate_refuses_is_rolled_back_within_the_loop_which_goes_on_from_the_champion(
    registry, stack, engine, rejected, warm
):
    sets = rows("select loop_step, policy_version from training_sets where loop_id = 'refused' order by loop_step")
    assert [(one["loop_step"], one["policy_version"]) for one in sets] == [(0, warm), (1, warm)]
    assert rejected
    decided = rows(f"select passed, champion from gates where candidate in ({str(rejected)[1:-1]})")
    assert decided == [{"passed": False, "champion": warm}] * len(rejected)
    moves = rows("""
        select object.split('@')[2] as alias, (detail ->> '$.to')::bigint as version
        from audit where action = 'move alias' order by noted_at
    """)[-2 * len(rejected) :]
    assert [one["version"] for one in moves] == [version for one in rejected for version in (one, None)]
    assert {one["alias"] for one in moves} == {"challenger"}
    served = rows("select version from deployments where accepted order by deployed_at")[-2 * len(rejected) :]
    assert [one["version"] for one in served] == [version for one in rejected for version in (one, warm)]
    assert registry.promoted(stack.model_name) == engine.served_version() == warm


def test_what_is_trained_on_after_a_roll_back_is_of_the_champion_and_of_no_age(rejected, warm):
    trained = rows("""
        select weight_versions from training_rows inner join training_sets using (training_set_id)
        where loop_id = 'refused'
    """)
    assert {version for one in trained for version in one["weight_versions"] if version >= 0} == {warm}
    ages = rows("from staleness inner join training_sets using (training_set_id) where loop_id = 'refused'")
    assert {one["staleness"] for one in ages} == {0}


def test_every_deployment_was_run(deployments, improved):
    for name in ("collect", "label", "train", "release", "reconcile", "evaluate", "improve", "maintain", "reap"):
        ended = [run["state_type"] for run in deployments.runs(name) if run["deployment_id"]]
        assert "COMPLETED" in ended, name
