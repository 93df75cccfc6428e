"""A Python function as a judge, in a process of its own."""

import os
import sys

import pytest

from tasks.judges import FunctionJudge, JudgeFailed, JudgeMisconfigured

SOURCE = """
import os, time

ANSWERS = {
    "zero": 0,
    "no": None,
    "text": "fine",
    "nan": float("nan"),
    "infinite": {"score": float("inf")},
    "unscored": {"reason": "forgot"},
    "high": 12.5,
    "strange": {"score": 1.0, "what": {1, 2}},
}

def judge(trajectory):
    print("said on the way")
    match trajectory.episode.problem_id:
        case "turns":
            return {"score": len(trajectory.turns) / 4, "reason": trajectory.episode.episode_id, "pid": os.getpid()}
        case "hangs":
            time.sleep(60)
        case "dies":
            os._exit(3)
        case name:
            return ANSWERS[name]
"""


@pytest.fixture
def functions(tmp_path, monkeypatch):
    """The module `own_judges` with these functions, importable here and in processes started from here."""
    (tmp_path / "own_judges.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    yield tmp_path
    sys.modules.pop("own_judges", None)


def about(played, name):
    """The episode, of a problem that tells the function what to do."""
    return played.__class__(**vars(played) | {"episode": played.episode.model_copy(update={"problem_id": name})})


async def test_what_a_function_returns_is_told_apart_and_what_it_raises_is_no_verdict(functions, played):
    expected = {
        "turns": ("scored", 0.5),
        "zero": ("scored", 0.0),
        "high": ("scored", 12.5),
        "no": ("refused", None),
        "text": ("malformed", None),
        "nan": ("malformed", None),
        "infinite": ("malformed", None),
        "unscored": ("malformed", None),
    }
    async with FunctionJudge("own_judges:judge") as judge:
        for name, why in (("raises", "KeyError: 'raises'"), ("strange", "TypeError")):
            with pytest.raises(JudgeFailed, match=why):
                await judge.ask(about(played, name))
        found = {name: await judge.ask(about(played, name)) for name in expected}
    assert {name: (one.status, one.value["score"]) for name, one in found.items()} == expected
    assert found["turns"].value["reason"] == "ep-1"
    worker = found["turns"].value["pid"]
    assert worker != os.getpid()
    with pytest.raises(ProcessLookupError):  # it ended with the judge
        os.kill(worker, 0)


async def test_a_function_that_hangs_or_ends_its_process_gives_no_verdict_and_the_next_episode_is_judged(
    functions, played
):
    async with FunctionJudge("own_judges:judge", deadline_s=1) as judge:
        with pytest.raises(JudgeFailed, match="more than 1 s"):
            await judge.ask(about(played, "hangs"))
        judge.deadline_s = 60
        with pytest.raises(JudgeFailed, match="ended its process"):
            await judge.ask(about(played, "dies"))
        assert (await judge.ask(about(played, "zero"))).value["score"] == 0


@pytest.mark.parametrize(
    "name", ["own_judges", "own_judges:", "nowhere_at_all:f", "nowhere.at.all:f", ":f", "own_judges:a b"]
)
def test_what_cannot_be_imported_is_refused(functions, name):
    with pytest.raises(JudgeMisconfigured):
        FunctionJudge(name)


async def test_a_name_that_the_module_lacks_is_refused(functions, played):
    async with FunctionJudge("own_judges:nope") as judge:
        with pytest.raises(JudgeMisconfigured, match="nope"):
            await judge.ask(played)


def test_other_code_is_another_judge(functions):
    before = FunctionJudge("own_judges:judge").producer
    assert before == FunctionJudge("own_judges:judge").producer
    (functions / "own_judges.py").write_text(SOURCE + "\nLATER = 1\n")
    assert FunctionJudge("own_judges:judge").producer != before
