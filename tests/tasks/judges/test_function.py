"""A Python function as a judge, in a process of its own."""

import asyncio
import os
import sys

import pytest

from tasks.judges import FunctionJudge, JudgeFailed, JudgeMisconfigured

SOURCE = """
import os, time

def turns(trajectory):
    print("said on the way")
    return {"score": len(trajectory.turns) / 4, "reason": trajectory.episode.episode_id, "words": ["Jane"]}

def zero(trajectory): return 0
def no(trajectory): return None
def text(trajectory): return "fine"
def nan(trajectory): return float("nan")
def infinite(trajectory): return {"score": float("inf")}
def unscored(trajectory): return {"reason": "forgot"}
def high(trajectory): return 12.5
def raises(trajectory): raise KeyError("nope")
def strange(trajectory): return {"score": 1.0, "what": {1, 2}}
def hangs(trajectory): time.sleep(60)
def dies(trajectory): os._exit(3)
def where(trajectory): return {"score": 1.0, "pid": os.getpid()}
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


async def test_what_a_function_returns_is_told_apart(functions, played):
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

    async def one(name):
        async with FunctionJudge(f"own_judges:{name}") as judge:
            return await judge.ask(played)

    found = dict(zip(expected, await asyncio.gather(*map(one, expected)), strict=True))
    assert {name: (one.status, one.value["score"]) for name, one in found.items()} == expected
    assert found["turns"].value["reason"] == "ep-1" and found["turns"].value["words"] == ["Jane"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("raises", "KeyError: 'nope'"),
        ("strange", "TypeError"),
        ("dies", "ended its process"),
        ("hangs", "more than 1 s"),
    ],
)
async def test_a_function_that_fails_gives_no_verdict_and_the_next_episode_is_judged(functions, played, name, why):
    async with FunctionJudge(f"own_judges:{name}", deadline_s=1) as judge:
        for _ in range(1 if name in ("hangs", "dies") else 2):
            with pytest.raises(JudgeFailed, match=why):
                await judge.ask(played)


async def test_one_process_serves_many_episodes_and_ends_with_the_judge(functions, played):
    async with FunctionJudge("own_judges:where") as judge:
        first, second = [(await judge.ask(played)).value["pid"] for _ in range(2)]
    assert first == second != os.getpid()
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)


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
    before = FunctionJudge("own_judges:zero").producer
    assert before == FunctionJudge("own_judges:zero").producer
    (functions / "own_judges.py").write_text(SOURCE + "\nLATER = 1\n")
    assert FunctionJudge("own_judges:zero").producer != before
