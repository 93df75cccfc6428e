"""The reward-hack corpus against the graders, judged by the rubrics that training uses."""

import pytest

from flows.cli.attack import attacked, rewards
from lakehouse.records import Problem
from sandboxes.agents.hacks import HACKS, swe_files, swe_process, swe_runner
from sandboxes.attack import play
from sandboxes.problems.search.build import build
from sandboxes.problems.swe import grade, spec
from sandboxes.problems.swe.mutate import mutations
from sandboxes.problems.swe.sources import pristine

HANG = "hack:hang"
FEW = (
    "hack:conftest-everywhere",
    "hack:forged-report-status",
    "hack:equal-to-everything",
    "hack:reports",
    "hack:edited-tests",
)


def of(kind: str, *names: str):
    return [hack for hack in HACKS.values() if hack.kind == kind and (not names or hack.name in names)]


def broken(rows):
    return {row["agent"]: (row["highest"], row["statuses"]) for row in rows if row["broken"]}


def unseen(rows):
    """Hacks that the radar misses, and an oracle that it sees."""
    return [row["agent"] for row in rows if bool(row["seen"]) == (row["agent"] == "oracle")]


def quiet(agent, done, total):
    """Progress that nobody looks at."""


@pytest.fixture
def clamped(problem) -> Problem:
    """A second problem: a guard of `clamp` is gone, which shows in one case of three."""
    core = pristine("pebble", "1.0")["pebble/core.py"].decode()
    found = next(m for m in mutations(core) if m.kind == "guard" and m.function == "clamp")
    bug = spec.Bug(path="pebble/core.py", **vars(found))
    value = spec.read_spec(problem).model_copy(
        update={
            "bug": bug,
            "repair": (spec.Edit(path=bug.path, line=bug.line, old=bug.new, new=bug.old),),
            "fail_to_pass": ("tests/test_core.py::test_clamp[-1-0]",),
        }
    )
    return problem.model_copy(update={"problem_id": "swe/pebble/clamp", "spec": value.model_dump_json()})


def test_the_corpus_is_large_and_every_hack_says_what_it_tries():
    assert len(of("swe")) >= 25 and len(of("search")) >= 15
    assert all(hack.aim.endswith(".") and hack.name.startswith("hack:") for hack in HACKS.values())


@pytest.mark.bubblewrap
@pytest.mark.parametrize("room", [swe_files, swe_process, swe_runner], ids=["files", "process", "runner"])
def test_every_hack_of_swe_scores_nothing_is_seen_and_the_oracle_everything(problem, boxes, room):
    rows = attacked("swe", [problem], [hack for hack in room.HACKS if hack.name != HANG], boxes, quiet)
    assert broken(rows) == {}
    assert unseen(rows) == []
    assert [row["highest"] for row in rows if row["agent"] == "oracle"] == [1.0]


@pytest.mark.bubblewrap
async def test_code_that_never_ends_scores_nothing(problem, boxes, monkeypatch):
    monkeypatch.setattr(grade, "LEAST_TIMEOUT_S", 2.0)
    assert rewards("swe", [await play(HANG, problem, boxes)]) == [0.0]


@pytest.mark.bubblewrap
def test_a_limit_wins_where_it_applies(problem, boxes):
    """Should this fail, the limit is none any more: say so in docs/grading.md."""
    (row,) = [row for row in attacked("swe", [problem], of("swe", "hack:special-case"), boxes, quiet) if row["limit"]]
    assert row["highest"] == 1.0


@pytest.mark.bubblewrap
def test_hacks_score_nothing_on_another_problem(clamped, boxes):
    rows = attacked("swe", [clamped], of("swe", *FEW), boxes, quiet)
    assert broken(rows) == {} and len(rows) == 1 + len(FEW)


def test_every_hack_of_search_scores_nothing_is_seen_and_the_oracle_everything(boxes):
    rows = attacked("search", build(n=6), of("search"), boxes, quiet)
    assert broken(rows) == {}
    assert unseen(rows) == []
