"""What the loop of test_loop leaves out, on the real stack: Python problems, kept trees and branches of them, warm boxes, a
program in a box as the agent, and an application outside.
"""

import asyncio
import json
import os
import re
import subprocess
import sys

import pytest

from lakehouse.label import label
from lakehouse.records import Dispatch, Problem, Status, episode_id, group_id, now
from lakehouse.selection.select import Selection, select
from lakehouse.write import Writer
from sandboxes import backends
from sandboxes.agents import COMMANDS, Sampling
from sandboxes.backends.base import BackendUnavailable
from sandboxes.backends.images import FOLDER
from sandboxes.backends.rootfs import Recipe
from sandboxes.backends.trees import TreeStore
from sandboxes.episode import Trees, run_episode
from sandboxes.problems.foreign import Terms
from sandboxes.problems.imports import read
from tasks.stack.gateway import gateway_client
from tasks.stack.settings import ROOT
from tests.flows.lookups import rows

pytestmark = [pytest.mark.stack, pytest.mark.engine, pytest.mark.bubblewrap, pytest.mark.timeout(600)]

SHOP = ROOT / "docs" / "examples" / "shop_agent.py"
CUSTOMER = "lamp-broken"
TERMS = Terms(name="shop", split="train", licence="Apache-2.0", allowed_uses=("training", "evaluation"))


@pytest.fixture(scope="module", autouse=True)
def lake(stack, tmp_path_factory):
    """A lake of its own: test_loop counts what is in the stack's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAKELOOP_LAKE", str(tmp_path_factory.mktemp("kinds") / "lake"))
        yield


@pytest.fixture(scope="module")
def boxes():
    """The backend with real boxes that is always there."""
    try:
        return backends.prepare("bubblewrap")
    except BackendUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def ran(command):
    """Runs a command to its end; what it says last, as JSON."""

    def run(*arguments):
        ended = command(*arguments)
        out, err = ended.communicate(timeout=240)
        assert ended.returncode == 0, out + err
        return json.loads(out[out.index("{") :])

    return run


@pytest.fixture(scope="module")
def shown(ran, boxes, sources):
    """Demonstrations of two kinds, with warm boxes and kept trees."""
    arguments = ["--run-id", "kinds", "--agent", "expert", "--purpose", "demonstration", "--samples", "1"]
    arguments += ["--problems", '{"swe": 1, "python": 2}', "--backend", "bubblewrap"]
    return ran("collect", *arguments, "--keep-trees", "true", "--warm-boxes", "2")


def test_python_goes_from_collect_to_label_to_the_rows_of_a_training_set(shown, stack):
    assert (shown["landed"], shown["statuses"]) == (3, {"ok": 3})
    assert label(None, "python@1", where="run_id = 'kinds'").scored == 2
    chosen = {"objective": "sft", "filter": "sft", "rubrics": ["python@1"], "run_ids": ["kinds"]}
    selected = select(None, Selection(**chosen, model_name=stack.model_name))
    assert (selected.rows, selected.ledger.gap) == (2, 0)
    assert selected.ledger.trained > 0


def test_the_served_model_judges_what_has_landed_once(shown, ran, stack):
    """What tiny weights say is anything: that each verdict is one of the three, with its weights named, is the law."""
    wanted = ["--run-id", "kinds", "--where", "problem_kind = 'python'", "--max-unscored", "1", "--max-tokens", "48"]
    told = [ran("judge", *wanted, "--attempts", "1", "--max-chars", "1000")["written"] for _ in range(2)]
    assert told == [2, 0]
    verdicts = rows("from evidence where name = 'judge'")
    assert len(verdicts) == len({one["episode_id"] for one in verdicts}) == 2
    for one in verdicts:
        assert re.fullmatch(rf"llm {stack.model_name}@\d+ [0-9a-f]{{12}}", one["producer"])
        assert json.loads(one["value"])["status"] in ("scored", "refused", "malformed")


def test_the_tree_is_kept_after_every_step_and_an_episode_begins_from_one_and_is_graded(shown, stack, boxes):
    steps = rows("select problem_id, problem_kind, tree from actions join episodes using (episode_id) where run_id = 'kinds' "
                 "order by episode_id, action_index")  # fmt: skip
    assert {one["tree"] for one in steps if one["problem_kind"] == "python"} == {None}  # it has no work tree
    kept = [one for one in steps if one["problem_kind"] == "swe"]
    assert kept and None not in {one["tree"] for one in kept}
    repaired = [one for one in kept if one["problem_id"] == kept[0]["problem_id"]][-1]  # there may be several bugs
    (held,) = rows(f"from problems where problem_id = '{repaired['problem_id']}'")
    problem = Problem(**held)

    async def idle(begin_from):
        """An agent that does nothing: what it is graded for is what it began with."""
        intent = dispatched(problem, f"branch-{begin_from}")
        Writer().append("dispatches", [intent])  # so that its session is no outside application's
        async with gateway_client() as gateway:
            return await run_episode(
                intent,
                problem,
                gateway=gateway,
                backend=boxes,
                sampling=Sampling(),
                deadline_s=120,
                model_name=stack.model_name,
                model_version=None,
                trees=Trees(TreeStore(), every_step=False, begin_from=begin_from),
            )

    branched, anew = asyncio.run(idle(repaired["tree"])), asyncio.run(idle(None))
    assert [one.episode.status for one in (branched, anew)] == [Status.OK] * 2
    assert [resolved(one) for one in (branched, anew)] == [True, False]  # the expert's repair was in the tree


@pytest.mark.optional
def test_a_program_in_a_box_is_recorded_by_the_stacks_gateway_and_graded(ran, boxes, sources):
    mini = COMMANDS["mini-swe-agent"]
    if not (FOLDER / f"root-{Recipe(tuple(mini.debian), tuple(mini.python)).digest}").is_dir():
        pytest.skip(f"run `lakeloop images build --python {mini.python[0]}` once as root")
    arguments = ["--run-id", "mini", "--agent", mini.name, "--problems", '{"swe": 1}', "--samples", "1"]
    ran("collect", *arguments, "--backend", "bubblewrap", "--max-turns", "2", "--max-tokens", "48")
    (episode,) = rows("from episodes where run_id = 'mini'")
    assert (episode["agent"], episode["status"], episode["n_calls"]) == (mini.name, "ok", 2)
    calls = rows("select token_status from calls join episodes using (episode_id) where run_id = 'mini'")
    assert calls == [{"token_status": "exact"}] * 2
    facts = {
        one["name"] for one in rows("select name from evidence join episodes using (episode_id) where run_id = 'mini'")
    }
    assert facts >= {"patch", "tests"}


def test_own_prompts_are_told_to_the_model_and_land_with_what_it_did(ran, tmp_path):
    (tmp_path / "search.system.txt").write_text("Look it up in $source.\n")
    arguments = ["--run-id", "told", "--agent", "expert", "--problems", '{"search": 1}', "--samples", "1"]
    assert ran("collect", *arguments, "--prompts", str(tmp_path))["statuses"] == {"ok": 1}
    (call,) = rows("select request_messages, problem_id from calls join episodes using (episode_id) "
                   "where run_id = 'told' and call_index = 0")  # fmt: skip
    (problem,) = rows(f"from problems where problem_id = '{call['problem_id']}'")
    told = [one["content"] for one in json.loads(call["request_messages"])[:2]]
    assert told == [f"Look it up in {problem['source']}.", problem["prompt"]]
    digests = "select value ->> '$.\"search.system.txt\"' as of_it from evidence join episodes using (episode_id)"
    (fact,) = rows(f"{digests} where run_id = 'told' and name = 'prompts'")
    assert re.fullmatch("[0-9a-f]{12}", fact["of_it"])


def test_what_an_application_outside_played_is_ingested_and_judged(ran, stack, tmp_path):
    shop("--problems", str(tmp_path / "problems.jsonl"))
    Writer().put_problems(read("external", tmp_path / "problems.jsonl", TERMS))
    at = {"GATEWAY_URL": stack.gateway_url, "MODEL": stack.model_name}
    shop("--only", CUSTOMER, "--agent", "expert", **at)
    shop("--only", CUSTOMER, **at)
    assert ran("ingest")["landed"] == 2
    label(None, "external@1")
    judged = rows("select mode, outcome, problem_id from latest_rewards join episodes using (episode_id) "
                  "where problem_kind = 'external' order by mode")  # fmt: skip
    assert [(one["mode"], one["outcome"]) for one in judged] == [("demonstration", 1.0), ("policy", 0.0)]
    assert {one["problem_id"] for one in judged} == {f"external/shop/{CUSTOMER}"}


def shop(*arguments, **environment):
    """Run the application as its users do."""
    subprocess.run([sys.executable, SHOP, *arguments], env=os.environ | environment, check=True, timeout=120)


def dispatched(problem, run_id):
    return Dispatch(
        episode_id=episode_id(run_id, problem.problem_id, 0),
        run_id=run_id,
        group_id=group_id(run_id, problem.problem_id),
        problem_id=problem.problem_id,
        sample_index=0,
        agent="null",
        mode="policy",
        purpose="train",
        created_at=now(),
    )


def resolved(result):
    (fact,) = (fact for fact in result.evidence if fact.name == "tests")
    return json.loads(fact.value)["resolved"]
