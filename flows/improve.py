"""Improve: the loop. Collect, label, train, release; the next groups sample from the new weights."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from prefect import flow
from prefect.artifacts import acreate_table_artifact
from pydantic import BaseModel, Field

from flows.collect import PromptFolder
from flows.evaluate import Evaluated, evaluate
from flows.gate import gate, played
from flows.release import release
from flows.train import train
from lakehouse import looping
from lakehouse.evaluation.exam import Exam
from lakehouse.evaluation.policy import Policy, read
from lakehouse.radar import LIMIT
from lakehouse.selection.select import NothingTrainable
from sandboxes.agents import Sampling
from sandboxes.prompts import read as read_prompts
from tasks.gate import NothingToDecide
from tasks.improve import (
    LOOP_ID,
    Drawn,
    PlayedGroup,
    Waves,
    alone,
    drawable,
    play_groups,
    recall_loop,
    roll_back,
    settle_groups,
    stand,
    standing,
)
from tasks.label import current_rubrics
from tasks.loop.admission import Infeasible, Partial, Terms, check
from tasks.loop.loop import Loop, Turn
from tasks.loop.parts import Settled, Standing, State
from tasks.progress import Progress
from tasks.registry.moves import Moved
from tasks.release import deploying, promote, register
from tasks.rollout import PROBLEMS, Draw, load_problems, own_run_id, same_prompts
from tasks.serving.engine import Swap
from tasks.showing import ashow
from tasks.stage import Play, Stage, set_up
from tasks.unseen import unseen
from tasks.waits import waits_shown

REMEDIES = {
    "zero_variance_group": "every sample of a problem ended alike: take more problems or samples, or another max_difficulty",
    "singleton_group": "fewer than two samples of a problem could be scored: take more samples, and see why the others failed",
    "not_trainable": 'episodes failed: `lakeloop query "select status, error, count(*) from episodes group by all"` says why',
}


class Round(BaseModel):
    """One step of the loop. Where no group was trainable there is no version: what was promoted stays."""

    number: int  # from 1 on
    groups: int = 0  # consumed, dropped ones included
    version: int | None = None
    training_set_id: str | None = None
    rows: int = 0
    left_out: dict[str, int] = {}  # where nothing was trained: episodes by why
    evaluation: Evaluated | None = None
    passed: bool | None = None  # the gate; None: it was not asked
    reasons: list[str] = []  # of the gate
    seconds: dict[str, float] = {}  # by what they were spent on; `collect` is waiting for a batch


class Improved(BaseModel):
    """What a loop did, in this process and in earlier ones."""

    loop_id: str
    run_ids: list[str]
    rounds: list[Round]


class NothingImproved(RuntimeError):
    """No round had anything to train on; the message counts the episodes by why and says what to do."""

    def __init__(self, rounds: Sequence[Round]) -> None:
        reasons = sum((Counter(turn.left_out) for turn in rounds), Counter[str]())
        remedies = [f"{name}: {REMEDIES[name]}" for name in reasons if name in REMEDIES]
        super().__init__(
            f"nothing improved, for no group of any round ({len(rounds)}) could be trained on: {counted(reasons)}. "
            + (". ".join(remedies) or "docs/operations.md says what the reasons mean")
        )


def counted(reasons: Mapping[str, int]) -> str:
    """Episodes by why they are left out, in words."""
    return ", ".join(f"{count} {reason}" for reason, count in reasons.items()) or "no episode landed"


@flow(name="improve", log_prints=True)
async def improve(
    mode: Literal["sync", "async"] = "sync",
    staleness: Annotated[int, Field(ge=0)] | None = None,
    rounds: Annotated[int, Field(ge=1)] = 2,
    problems: dict[str, int] | None = None,
    samples: Annotated[int, Field(ge=2)] = 8,
    max_difficulty: Annotated[float, Field(ge=0, le=1)] = 1.0,
    temperature: Annotated[float, Field(gt=0)] = 1.0,
    max_tokens: Annotated[int, Field(ge=1)] = 96,
    max_turns: Annotated[int, Field(ge=1)] = 6,
    backend: Literal["auto", "docker", "bubblewrap"] = "auto",
    concurrency: Annotated[int, Field(ge=1)] = 24,
    max_in_flight: Annotated[int, Field(ge=1)] | None = None,
    deadline_s: Annotated[float, Field(gt=0)] = 300,
    group_deadline_s: Annotated[float, Field(gt=0)] = 900,
    starved_s: Annotated[float, Field(gt=0)] = 1800,
    partial: Partial = "keep",
    fill: bool = False,
    swap: Swap = "keep",
    evaluate_every: Annotated[int, Field(ge=1)] = 1,
    evaluate_problems: dict[str, int] | None = None,
    evaluate_samples: Annotated[int, Field(ge=1)] = 1,
    policy: str = "default",
    learning_rate: Annotated[float, Field(gt=0)] | None = None,
    lora: Annotated[int, Field(ge=1)] | None = None,
    max_hack_rate: Annotated[float, Field(ge=0, le=1)] = LIMIT,
    seed: int = 0,
    prompts: PromptFolder | None = None,
    loop_id: Annotated[str, Field(pattern=LOOP_ID)] | None = None,
) -> Improved:
    """Rounds of GRPO from the promoted version: collect, label, train, release, evaluate.

    In mode async episodes are played while the trainer trains, and weights are swapped under them; how old what is trained
    on may be is bounded. A round in which no group is trainable is passed over; where that is so in every round, the run fails
    and says why. All of a loop is in the lake: with its id it goes on where it was stopped or killed.

    Args:
        mode: sync takes turns: what is trained on was sampled by the version that is trained. async does not wait.
        staleness: Versions that the oldest token of an episode may be behind the version that is trained. Default: 1 for
            async; sync is 0.
        rounds: Training steps of the loop, those done earlier included.
        problems: Problems per round and kind: the groups of a batch. Default: 16 search, 4 swe.
        samples: Episodes per problem: a group's baseline needs at least two.
        max_difficulty: Curriculum: only problems up to this difficulty, 0 to 1.
        temperature: Sampling temperature; at 0 every episode of a group would be the same.
        max_tokens: Tokens per model call.
        max_turns: Model calls per episode.
        backend: Where code runs. auto: Docker if an engine answers, else bubblewrap.
        concurrency: Episodes at a time.
        max_in_flight: Groups at a time, begun and not yet judged. Default: as many as staleness admits.
        deadline_s: Seconds an episode may take.
        group_deadline_s: Seconds a group may take from the start of its first episode; what is not done then is cut off.
        starved_s: Seconds without a group that can be trained on after which the loop gives up and says why.
        partial: Groups of which not every sample has a reward. keep: trained on where two have. drop: replaced.
        fill: Replace groups whose samples all ended alike, so that every round has a full batch to train on.
        swap: What becomes of calls in flight when weights change: keep (they go on with the new ones), wait (they end first),
            abort.
        evaluate_every: Rounds from one evaluation to the next. After the last round, passed over or not, what is served and was
            not evaluated yet always is.
        evaluate_problems: Held-out problems of an evaluation. Default: 64 search, 24 swe; {} for none.
        evaluate_samples: Episodes per held-out problem.
        policy: The gate's, at every evaluation: default, strict or a TOML file. What passes is promoted; until then a
            version is served as `challenger`. Without evaluations every version is promoted.
        learning_rate: Default: the recipe's.
        lora: Train adapters of this rank and merge them. Default: all weights.
        max_hack_rate: A version trained on more than this share of episodes with a reward hack is not served, and the run ends.
        seed: Draws the problems; each round draws anew.
        prompts: A folder with prompts of your own in place of the shipped ones, see docs/agents.md; evaluations have them too.
        loop_id: Name a loop that was stopped to go on with it. Default: derived from the flow run, so that a retry goes on.
    """
    wanted = problems or PROBLEMS
    name = loop_id or own_run_id().replace("run-", "loop-")
    terms = Terms(
        batch=sum(wanted.values()),
        steps=rounds,
        evaluate_every=evaluate_every,
        samples=samples,
        staleness=_staleness(mode, staleness),
        max_in_flight=max_in_flight,
        partial=partial,
        fill=fill,
        deadline_s=deadline_s,
        group_deadline_s=group_deadline_s,
        starved_s=starved_s,
    )
    check(terms)
    if evaluate_problems == {} and policy != "default":
        raise Infeasible(
            f"policy {policy} is the gate's at evaluations, and evaluate_problems is {{}}: leave one of them out"
        )
    judge = None if evaluate_problems == {} else read(policy)
    sitting: dict[str, Any] = {
        "samples": evaluate_samples,
        "max_difficulty": max_difficulty,
        "temperature": temperature,
    }
    sitting |= {"max_tokens": max_tokens, "max_turns": max_turns, "prompts": prompts}
    exam = Exam.model_validate(sitting | ({"problems": evaluate_problems} if evaluate_problems else {}))
    if judge:
        _can_decide(judge, exam)
    draw = Draw(name, wanted, "train", samples, "policy", "train", seed, max_difficulty)
    play = Play(
        Sampling(temperature=temperature, max_tokens=max_tokens, max_turns=max_turns),
        backend,
        concurrency,
        deadline_s,
        prompts=read_prompts(prompts),
    )
    await same_prompts(name, play.prompts)
    with alone():
        kinds = list({**wanted, **exam.problems} if judge else wanted)
        await load_problems(kinds)
        check(terms, await asyncio.to_thread(drawable, draw))
        print(f"loop {name}: if this is interrupted, the same parameters with this loop id continue it")
        if judge:
            await played((await asyncio.to_thread(standing)).version, exam)  # now, that the gate swaps nothing later
        progress = await Progress.begin("collecting train", rounds * terms.batch * samples)
        async with set_up(play, name, progress, kinds) as stage, waits_shown(name):
            parts = _Parts(
                terms,
                Waves(name, draw),
                stage,
                training={"learning_rate": learning_rate, "lora": lora},
                exam=exam if judge else None,
                policy=policy,
                swap=swap,
                max_hack_rate=max_hack_rate,
            )
            turns = await Loop(terms, parts, print).run()
    done = parts.rounds(turns)
    await ashow(
        acreate_table_artifact,
        key="loop",
        table=[one.model_dump(exclude={"evaluation"}) for one in done],
        description=f"Loop {name}, by round",
    )
    if all(one.version is None for one in done):
        raise NothingImproved(done)
    return Improved(loop_id=name, run_ids=await asyncio.to_thread(looping.runs, None, name), rounds=done)


def _can_decide(policy: Policy, exam: Exam) -> None:
    """Infeasible where the gate would refuse every version, for an evaluation is too small for its policy."""
    episodes = sum(exam.problems.values()) * exam.samples
    if episodes < policy.min_pairs:
        raise Infeasible(
            f"an evaluation plays {episodes} episodes and the gate's policy asks for at least {policy.min_pairs} pairs: every "
            "version would be refused. Ask for more evaluate_problems or evaluate_samples, for {} to promote without "
            "evaluations, or for a policy with other min_pairs"
        )


def _staleness(mode: Literal["sync", "async"], asked: int | None) -> int:
    if mode == "sync" and asked:
        raise Infeasible(f"mode sync is a staleness of 0, and {asked} was asked for: take --mode async")
    return asked if asked is not None else {"sync": 0, "async": 1}[mode]


@dataclass
class _Parts:
    """The parts of the loop over the real lake, engine and trainer."""

    terms: Terms
    waves: Waves
    stage: Stage
    training: Mapping[str, Any]  # options of `train`
    exam: Exam | None  # None: every version is promoted
    policy: str  # the gate's
    swap: Swap
    max_hack_rate: float
    _rounds: dict[int, Round] = field(default_factory=dict)
    _known: dict[int, looping.StepRow] = field(default_factory=dict)  # steps of earlier processes
    _version: int = 0  # that the next step starts from, and that is in service
    _shards: int = 0

    @property
    def rubrics(self) -> dict[str, str]:
        """The current rubric of each kind that is played."""
        kinds = {name.partition("/")[0] for name in self.waves.draw.problems}
        return {kind: current_rubrics([kind])[0] for kind in sorted(kinds)}

    def rounds(self, turns: Sequence[Turn]) -> list[Round]:
        """Every step of the loop, with the seconds of those of this process."""
        for turn in turns:
            self._rounds[turn.number].seconds = turn.seconds
        return [self._rounds[number] for number in sorted(self._rounds)]

    async def recall(self) -> State:
        await asyncio.to_thread(self.waves.recall)
        state = await asyncio.to_thread(recall_loop, self.waves.loop_id, self.rubrics)
        rows = await asyncio.to_thread(
            looping.steps, None, self.waves.loop_id, model_name=self.stage.settings.model_name
        )
        self._known = {row.number: row for row in rows}
        self._rounds = {
            row.number: Round(
                number=row.number + 1,
                groups=len(row.group_ids),
                version=row.version,
                training_set_id=row.training_set_id,
                rows=row.rows,
            )
            for row in rows
        }
        if state.settled:
            print(f"going on: {len(state.settled)} groups have settled and {len(state.steps)} steps were taken before")
        return state

    async def standing(self) -> Standing:
        own = [one.version for one in self._rounds.values() if one.version is not None] if self.exam else []
        found = await asyncio.to_thread(stand, own, self._version, self.swap)
        self._version = found.version
        return found

    async def begin(self, count: int, without: Collection[str]) -> Sequence[Drawn]:
        return await asyncio.to_thread(self.waves.begin, count, without)

    async def play(self, groups: Sequence[Drawn], ended: Callable[[PlayedGroup], None]) -> None:
        self._shards += 1
        shard = play_groups.with_options(task_run_name=f"shard-{self._shards}")
        await shard(unseen(self.stage), unseen(groups), self.terms.group_deadline_s, unseen(ended))

    async def settle(self, played: Sequence[PlayedGroup]) -> Sequence[Settled]:
        return await asyncio.to_thread(settle_groups, self.waves.loop_id, unseen(played), self.rubrics)

    async def train(self, number: int, groups: Collection[str]) -> int | None:
        made = self._rounds.setdefault(number, Round(number=number + 1, groups=len(groups)))
        known = self._known.get(number)
        try:
            trained = await train(
                objective="grpo",
                **(self._selection(groups) if known is None else {"training_set_id": known.training_set_id}),
                parent=known.policy_version if known else self._version,
                loop_id=self.waves.loop_id,
                loop_step=number,
                seed=self.waves.draw.seed + number + 1,
                **self.training,
            )
        except NothingTrainable as nothing:
            print(f"round {made.number} is passed over, no group can be trained on: {counted(nothing.reasons)}")
            made.left_out = nothing.reasons
            return None
        made.training_set_id, made.rows = trained.training_set_id, trained.rows
        made.version = await asyncio.to_thread(
            register,
            trained.folder,
            stage="grpo",
            parent=trained.parent,
            training_set_id=trained.training_set_id,
            mlflow_run_id=trained.mlflow_run_id,
        )
        return made.version

    def _selection(self, groups: Collection[str]) -> dict[str, Any]:
        """The options of `train` that say which rows of these groups it takes."""
        return {
            "group_ids": sorted(groups),
            "rubrics": list(self.rubrics.values()),
            "filter": "grpo+whole" if self.terms.partial == "drop" else "grpo",
            "max_staleness": self.terms.staleness,
        }

    async def serve(self, number: int, version: int) -> bool:
        made = await asyncio.to_thread(looping.made, None, self.stage.settings.model_name, version)
        found = await self.standing()
        if found.version not in (made.parent_version, version):
            print(
                f"version {version} is not put in service: it was trained from {made.parent_version}, and `champion` was moved "
                f"meanwhile. The loop goes on from version {found.version}"
            )
            return False
        await release(
            Path(made.weights_path),
            stage=made.stage,
            parent=made.parent_version,
            training_set_id=made.training_set_id,
            mlflow_run_id=made.mlflow_run_id,
            max_hack_rate=self.max_hack_rate,
            alias="challenger" if self.exam else "champion",
            swap=self.swap,
        )
        self._version = version
        return True

    async def examine(self, number: int, version: int) -> None:
        if self.exam is None:
            return
        made = next(one for one in self._rounds.values() if one.version == version)
        made.evaluation = await evaluate(stage=f"round-{made.number}", **self.exam.model_dump())
        try:
            decision = await gate(version, policy=self.policy, exam=self.exam)
        except NothingToDecide:
            return  # promoted before a crash
        made.passed, made.reasons = decision.passed, decision.reasons
        why, evidence = f"gate {decision.gate_id}, step {number + 1}", {"gate_id": decision.gate_id}
        if decision.passed:
            try:
                await asyncio.to_thread(_promote, version, decision.champion, why, evidence)
            except Moved as moved:  # by a person or another run, while it was examined: theirs stays
                made.reasons = [str(moved)]
                print(moved)
        elif decision.when_refused == "roll_back" and decision.champion is not None:
            await asyncio.to_thread(roll_back, decision.champion, version, self.swap, why=why, evidence=evidence)
            self._version = decision.champion


def _promote(version: int, champion: int | None, why: str, evidence: Mapping[str, Any]) -> None:
    with deploying():
        promote(version, why=why, evidence=evidence, expected=champion)
