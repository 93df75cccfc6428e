"""Groups played side by side: each has one deadline, from the moment its first sample begins."""

import asyncio
from types import SimpleNamespace

import pytest

from tasks import stage as stages
from tasks.improve import Drawn, PlayedGroup, play_groups
from tasks.stage import Play, Room, Stage

GROUP_S = 1.0


@pytest.fixture
def stage(monkeypatch):
    """A stage with places for so many episodes, whose episodes take what their problem says and end at `until`."""

    async def run_episode(intent, problem, *, until, deadline_s, **_):
        now = asyncio.get_running_loop().time()  # the monotonic clock, as `until` is of
        due = min(now + deadline_s, until)
        wanted = problem.seconds[intent.sample_index]
        await asyncio.sleep(max(0.0, min(wanted, due - now)))
        ended.append((problem.name, intent.sample_index, until))
        return SimpleNamespace(status="ok" if now + wanted <= due else "timeout")

    async def advance():
        pass

    ended: list[tuple[str, int, float]] = []
    monkeypatch.setattr(stages, "run_episode", run_episode)
    monkeypatch.setattr("tasks.improve.prepare", lambda problems: None)

    def made(places):
        room = Room(*(asyncio.Semaphore(places) for _ in range(3)), boxes=0)
        settings = SimpleNamespace(model_name="tiny", door=None)
        engine, progress = SimpleNamespace(served_version=lambda **_: 1), SimpleNamespace(advance=advance)
        play = Play(None, "none", places, deadline_s=60)
        made = Stage(play, settings, engine, None, None, None, None, progress, room, version=1)
        made.ended = ended
        return made

    return made


def group(name, *seconds):
    problem = SimpleNamespace(name=name, kind="search", seconds=seconds)
    return Drawn(name, name, problem, [SimpleNamespace(sample_index=number) for number in range(len(seconds))])


async def played(stage, *groups):
    told: dict[str, PlayedGroup] = {}
    async with asyncio.timeout(10):
        count = await play_groups.fn(stage, groups, GROUP_S, lambda one: told.update({one.group.group_id: one}))
    assert count == sum(len(one.todo) for one in groups)
    return {name: [result.status for result in one.results] for name, one in told.items()}, list(told)


async def test_a_straggler_is_cut_off_at_its_groups_deadline_and_the_others_stay(stage):
    found, order = await played(stage(8), group("slow", 0.0, 30.0, 0.1), group("quick", 0.0, 0.1))
    assert found == {"slow": ["ok", "timeout", "ok"], "quick": ["ok", "ok"]}
    assert order == ["quick", "slow"]  # each is told of as it ends


async def test_the_deadline_counts_from_a_groups_first_sample_and_not_anew_from_each(stage):
    """One place: samples play one after another."""
    made = stage(1)
    found, _ = await played(made, group("one", 0.6, 0.6, 0.0))
    assert found == {"one": ["ok", "timeout", "timeout"]}
    assert len({until for _, _, until in made.ended}) == 1


async def test_a_group_that_waits_for_a_place_has_all_its_time_from_when_it_begins(stage):
    made = stage(1)
    found, _ = await played(made, group("first", 0.6), group("second", 0.6))
    assert found == {"first": ["ok"], "second": ["ok"]}
    assert len({until for _, _, until in made.ended}) == 2
