"""An episode keeps its work tree after every step when asked, and another one begins from any of them."""

from types import SimpleNamespace

import pytest

from lakehouse.records import Dispatch, Problem, Status, now
from sandboxes.agents import Sampling
from sandboxes.agents.scripted import Scripted
from sandboxes.backends.scripted import ScriptedBackend
from sandboxes.backends.trees import TreeMissing, TreeStore
from sandboxes.deadline import Deadline
from sandboxes.episode import Attempt, Trees
from sandboxes.problems.base import EnvironmentFailure, Observation, ToolCall
from sandboxes.problems.kinds import KINDS

WRITES = [ToolCall("write", {"text": text}) for text in ("one", "two", "two")]


class World:
    """A work tree of one file, which the only tool writes."""

    backend_name = "scripted"
    messages = tools = ()

    def __init__(self):
        self.tree = {"note": b"start"}

    async def call(self, name, arguments):
        self.tree["note"] += b" " + arguments["text"].encode()
        return Observation("written")


class Treeless(World):
    def __init__(self):
        self.note = b""

    async def call(self, name, arguments):
        return Observation("nothing to keep")


@pytest.fixture
def opened(monkeypatch):
    """Puts a world into the place of the search kind."""

    def put(world):
        async def open_(problem, backend, prompts):
            return world

        monkeypatch.setitem(KINDS, "search", SimpleNamespace(open=open_, expert=lambda _: WRITES))
        return world

    return put


def attempt(trees):
    problem = Problem.model_construct(problem_id="p", kind="search", edition="e", split="train", prompt="", spec="")
    dispatch = Dispatch(
        episode_id="e", run_id="r", group_id="g", problem_id="p", sample_index=0, agent="scripted", mode="policy",
        purpose="train", created_at=now(),
    )  # fmt: skip
    gateway = SimpleNamespace(openai_base_url="http://gateway/v1")
    return Attempt(dispatch, problem, gateway, ScriptedBackend(), Sampling(), 20.0, "m", trees, Scripted())


async def act(trees):
    tried = attempt(trees)
    with Deadline(20.0, "the episode"):
        await tried.act(SimpleNamespace(api_key="key", session_id="s"))
    return [action.tree for action in tried.result(None).actions]


async def test_every_step_names_the_tree_it_left_and_equal_trees_are_one(opened, tmp_path):
    store = TreeStore(tmp_path)
    opened(World())
    steps = await act(Trees(store))
    assert [store.get(step)["note"] for step in steps] == [b"start one", b"start one two", b"start one two two"]


async def test_an_episode_begins_from_the_step_of_another_one(opened, tmp_path):
    store = TreeStore(tmp_path)
    opened(World())
    first = (await act(Trees(store)))[0]
    branched = opened(World())
    await act(Trees(store, every_step=False, begin_from=first))
    assert branched.tree == {"note": b"start one one two two"}
    assert store.get(first)["note"] == b"start one"  # the branch is nobody else's


async def test_nothing_is_kept_unless_it_is_asked_for(opened, tmp_path):
    opened(World())
    assert await act(None) == [None] * 3
    assert await act(Trees(TreeStore(tmp_path), every_step=False)) == [None] * 3
    assert list(tmp_path.iterdir()) == []


async def test_an_environment_without_a_work_tree_keeps_none_and_cannot_branch(opened, tmp_path):
    opened(Treeless())
    assert await act(Trees(TreeStore(tmp_path))) == [None] * 3
    with pytest.raises(EnvironmentFailure, match="no work tree to begin from"):
        await act(Trees(TreeStore(tmp_path), begin_from="0" * 64))


async def test_a_tree_that_was_pruned_is_an_infrastructure_error_and_never_a_zero(opened, tmp_path):
    opened(World())
    tried = attempt(Trees(TreeStore(tmp_path), begin_from="0" * 64))
    await tried.guard(tried.act(SimpleNamespace(api_key="key", session_id="s")), 20.0, "the episode")
    assert tried.status is Status.INFRA_ERROR
    assert TreeMissing.__name__ in tried.error
