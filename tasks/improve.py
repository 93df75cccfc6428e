"""Improve: what a loop plays, settles and finds of itself, as parts of `tasks.loop`; a Prefect task per shard and landing."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from lakehouse import looping
from lakehouse.home import home
from lakehouse.label import label
from lakehouse.locks import locked
from lakehouse.planning import NotEnoughProblems, available, choose, named
from lakehouse.records import Dispatch, Problem, digest, episode_id
from sandboxes.episode import Result
from sandboxes.problems.library import prepare
from tasks.acting import actor
from tasks.label import selected
from tasks.land import put
from tasks.loop.parts import Group, Settled, Standing, State, Step
from tasks.reconcile import VERDICTS, refuse
from tasks.registry import moves
from tasks.registry.versions import CHAMPION, Registry, RegistryError
from tasks.release import NotDeployed, deploying, serve
from tasks.retrying import infrastructure
from tasks.rollout import Draw, intended, write_down
from tasks.serving.engine import Engine, Swap
from tasks.stack.settings import Settings
from tasks.stage import Stage, Term

LOCKED_S = 5.0
LOOP_ID = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"  # part of run ids and of folder names


class LoopRunning(RuntimeError):
    """Another process runs a loop in this home."""


@dataclass(frozen=True)
class Drawn(Group):
    """A group with what is left of it to play."""

    problem: Problem
    todo: Sequence[Dispatch]


@dataclass(frozen=True)
class PlayedGroup:
    """A group's samples, as they ended in this process."""

    group: Drawn
    results: Sequence[Result]


def alone() -> AbstractContextManager[None]:
    """Be the only loop of this home while the block runs: two would train each from the other's version. LoopRunning."""
    lock = home().root / "loop.lock"

    def busy(holder: str) -> LoopRunning:
        return LoopRunning(f"process {holder} runs a loop here already ({lock}): wait for its end, or end it")

    return locked(lock, deadline_s=LOCKED_S, busy=busy)


def drawable(draw: Draw) -> int:
    """How many problems a batch can be drawn from; a set that has too few counts for what it has."""
    counts = {
        name: available(None, name, split=draw.split, max_difficulty=draw.max_difficulty) for name in draw.problems
    }
    return sum(counts.values()) if all(counts[name] >= n for name, n in draw.problems.items()) else min(counts.values())


@dataclass
class Waves:
    """The groups of a loop, one after another: what was broken off, then draw after draw. Wave n is the run `<loop>-<n>`.

    The same loop over the same problems draws the same groups. Of a problem with a new edition, what was broken off is
    left as it is: samples of two editions are no group.
    """

    loop_id: str
    draw: Draw  # of the first wave but for its run id and seed, which are the wave's
    _left: deque[Drawn] = field(default_factory=deque)
    _wave: deque[Drawn] = field(default_factory=deque)
    _number: int = 0

    def recall(self) -> None:
        """Take up what is left to play, and go on within the wave that was drawn last."""
        left: dict[str, list[Dispatch]] = {}
        for one in looping.left(None, self.loop_id):
            left.setdefault(one.group_id, []).append(one)
        problems = named(None, [todo[0].problem_id for todo in left.values()])
        self._left = deque(
            Drawn(name, todo[0].problem_id, problem, todo)
            for name, todo in left.items()
            if (problem := problems.get(todo[0].problem_id)) and _of_edition(todo[0], problem)
        )
        drawn = [int(run.rpartition("-")[2]) for run in looping.runs(None, self.loop_id)]
        self._number = max(drawn, default=1) - 1

    def begin(self, count: int, without: Collection[str]) -> list[Drawn]:
        """At most `count` groups, at least one, written down before anything runs. NotEnoughProblems where none is left."""
        again: list[Drawn] = []
        while self._left and len(again) < count:
            group = self._left.popleft()
            if group.problem_id not in without:
                again.append(group)
        fresh: list[Drawn] = []
        while len(again) + len(fresh) < count:
            while not self._wave:
                self._next(without)
            group = self._wave.popleft()
            if group.problem_id not in without:
                fresh.append(group)
        if fresh:
            write_down([one for group in fresh for one in group.todo])
        return again + fresh

    def _next(self, without: Collection[str]) -> None:
        """Draw the next wave, a smaller one where too few problems of a set are left. NotEnoughProblems where none is.

        Its kinds are mixed, so that those whose episodes are short do not fill the first batches.
        """
        split, difficulty = self.draw.split, self.draw.max_difficulty
        left = {
            name: min(count, available(None, name, split=split, max_difficulty=difficulty, without=without))
            for name, count in self.draw.problems.items()
        }
        if not any(left.values()):
            raise NotEnoughProblems(
                f"no problem is left to draw in loop {self.loop_id}: {len(without)} are not drawn any more, for none of their "
                "groups could be scored. `lakeloop query --named failures` shows how episodes end"
            )
        self._number += 1
        draw = replace(self.draw, run_id=f"{self.loop_id}-{self._number}", seed=self.draw.seed + self._number)
        known = looping.dispatched(None, draw.run_id)
        problems = choose(None, left, split=split, seed=draw.seed, max_difficulty=difficulty, without=without)
        mixed = sorted(problems, key=lambda problem: digest(draw.run_id, problem.problem_id))
        for problem in mixed:
            if problem.problem_id not in known:
                todo = intended(draw, [problem], self.loop_id)
                self._wave.append(Drawn(todo[0].group_id, problem.problem_id, problem, todo))


def _of_edition(one: Dispatch, problem: Problem) -> bool:
    return one.episode_id == episode_id(one.run_id, one.problem_id, one.sample_index, problem.edition)


@task(cache_policy=NO_CACHE)
async def play_groups(
    stage: Stage, groups: Sequence[Drawn], group_deadline_s: float, ended: Callable[[PlayedGroup], None]
) -> int:
    """Play groups side by side and tell of each as it ends; how many episodes that were."""
    await asyncio.to_thread(prepare, [group.problem for group in groups])

    async def one(group: Drawn) -> None:
        term = Term(group_deadline_s)
        results = await asyncio.gather(*(stage.perform(sample, group.problem, term) for sample in group.todo))
        ended(PlayedGroup(group, results))

    async with asyncio.TaskGroup() as tasks:
        for group in groups:
            tasks.create_task(one(group))
    return sum(len(group.todo) for group in groups)


@task(cache_policy=NO_CACHE, retries=3, retry_delay_seconds=2, retry_condition_fn=infrastructure)
def settle_groups(loop_id: str, played: Sequence[PlayedGroup], rubrics: Mapping[str, str]) -> list[Settled]:
    """Land groups and judge them at once. `rubrics` by kind of problem."""
    landed = put([result for one in played for result in one.results])
    if landed.quarantined:
        print(
            f"ALARM: {len(landed.quarantined)} episodes are in quarantine; `lakeloop query 'from quarantine'` says why"
        )
    names = [one.group.group_id for one in played]
    within = f"group_id in ({', '.join(repr(name) for name in names)})"  # ids of our own, of letters and digits
    for kind in sorted({one.group.problem.kind for one in played}):
        label(None, rubrics[kind], where=within, actor=actor())
    found = {one.group_id: one for one in _settled(loop_id, rubrics, names)}
    return [found.get(one.group.group_id) or _gone(one) for one in played]


def _gone(one: PlayedGroup) -> Settled:
    """A group that was erased while it was played."""
    return Settled(one.group.group_id, one.group.problem_id, len(one.results), [], 0.0, {"erased": len(one.results)})


def _settled(loop_id: str, rubrics: Mapping[str, str], names: Sequence[str] | None = None) -> list[Settled]:
    rows = looping.settled(
        None, loop_id, model_name=Settings().model_name, rubrics=list(rubrics.values()), group_ids=names
    )
    return [
        Settled(
            row.group_id,
            row.problem_id,
            row.samples,
            [frozenset(versions) for versions in row.scored],
            row.spread,
            Counter(row.failures),
        )
        for row in rows
    ]


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=3, retry_condition_fn=infrastructure)
def recall_loop(loop_id: str, rubrics: Mapping[str, str]) -> State:
    """All there is of a loop in the lake. What had landed and was not judged is judged now."""
    runs = looping.runs(None, loop_id)
    if runs:
        for rubric in rubrics.values():
            label(None, rubric, where=selected(runs, "true"), actor=actor())
    rows = looping.steps(None, loop_id, model_name=Settings().model_name)
    steps = [  # one that others came after and that was never served was given up: somebody had moved the champion
        Step(row.number, frozenset(row.group_ids), row.version, finished=row.finished or row is not rows[-1])
        for row in rows
    ]
    return State(_settled(loop_id, rubrics), steps)


def standing(own: Collection[int] = ()) -> Standing:
    """The version that a loop goes on from, with its ancestors: the promoted one, or a challenger that is newer and its `own`.

    Where somebody moved `champion` since the challenger's training began it is the promoted one, as after a roll-back of the
    gate; unless that was refused, for it cannot be served. RegistryError where nothing is promoted.
    """
    settings = Settings()
    registry, name = Registry(settings.mlflow_url), settings.model_name
    for told in moves.note_others(registry, name):
        print(f"moved in MLflow: {told}")
    champion = registry.promoted(name)
    if champion is None:
        raise RegistryError(f"nothing is promoted for {name}: release a version to start from")
    challenger = registry.promoted(name, moves.CHALLENGER)
    version = champion
    if challenger is not None and challenger in own and challenger > champion:
        refused = moves.REFUSED in registry.client.get_model_version(name, str(champion)).tags
        version = champion if looping.overruled(None, name, challenger) and not refused else challenger
    return Standing(version, looping.lineage(None, name, version))


def stand(own: Collection[int], last: int, swap: Swap) -> Standing:
    """What `standing` says, in service if it is another one than `last`, which is served.

    A champion that may not be served is refused, and an own version goes on in its place; where there is none, what was in the
    way is raised.
    """
    found = standing(own)
    if found.version == last:
        return found
    try:
        put_in_service(found.version, swap)
    except (*VERDICTS, NotDeployed) as error:
        settings = Settings()
        if found.version != Registry(settings.mlflow_url).promoted(settings.model_name):
            raise
        refuse(found.version, CHAMPION, str(error))
        instead = standing(own)
        if instead.version == found.version:
            raise
        print(
            f"version {found.version} is promoted and cannot be served, the loop goes on from {instead.version}: {error}"
        )
        if instead.version != last:
            put_in_service(instead.version, swap)
        return instead
    return found


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=3, retry_condition_fn=infrastructure)
def put_in_service(version: int, swap: Swap) -> None:
    """Serve a version, if another one is served: the watcher may have put the champion back, or somebody moved that."""
    with deploying():
        with Engine(Settings().engine) as engine:
            served = engine.served_version()
        if served != version:
            print(f"version {served} is served and the loop goes on from {version}: deploying that")
            serve(version, swap=swap)


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=3, retry_condition_fn=infrastructure)
def roll_back(champion: int, version: int, swap: Swap, *, why: str, evidence: Mapping[str, Any]) -> None:
    """Serve the champion again in place of a version that the gate refused, and let `challenger` point at nothing."""
    settings = Settings()
    registry, name = Registry(settings.mlflow_url), settings.model_name
    with deploying():
        serve(champion, swap=swap)
        if registry.promoted(name, moves.CHALLENGER) == version:
            moves.move(registry, name, moves.CHALLENGER, None, who=actor(), why=why, evidence=evidence)
