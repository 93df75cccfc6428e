"""Collect: problems become episodes in the lake."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

from prefect import flow
from prefect.artifacts import acreate_table_artifact
from pydantic import AfterValidator, BaseModel, Field

from lakehouse.records import Split
from sandboxes.agents import Sampling, find
from sandboxes.prompts import read
from tasks.events import tell
from tasks.land import land
from tasks.progress import Progress
from tasks.rollout import (
    Draw,
    cast,
    dispatch,
    fetch,
    load_problems,
    own_run_id,
    rehearse,
    roll_out,
    same_prompts,
    shards,
)
from tasks.showing import ashow
from tasks.stage import Play
from tasks.unseen import unseen


def _known(agent: str) -> str:
    """DefinitionError, a ValueError, where no agent is called that or its file is wrong."""
    if agent != "policy":  # each kind has its own
        find(agent)
    return agent


def _readable(folder: Path) -> Path:
    """PromptError, a ValueError, where the folder's prompts cannot be used; else where it is, for a run elsewhere."""
    read(folder)
    return folder.resolve()


AgentName = Annotated[str, AfterValidator(_known)]
PromptFolder = Annotated[Path, AfterValidator(_readable)]


class Collected(BaseModel):
    """What a run left in the lake."""

    run_id: str
    landed: int
    skipped: int
    quarantined: int
    statuses: dict[str, int]


@flow(name="collect", flow_run_name="collect-{purpose}", log_prints=True)
async def collect(
    problems: dict[str, int] | None = None,
    samples: Annotated[int, Field(ge=1)] = 8,
    split: Split = "train",
    agent: AgentName = "policy",
    purpose: str = "train",
    seed: int = 0,
    max_difficulty: Annotated[float, Field(ge=0, le=1)] = 1.0,
    temperature: Annotated[float, Field(ge=0)] = 1.0,
    max_tokens: Annotated[int, Field(ge=1)] = 96,
    max_turns: Annotated[int, Field(ge=1)] = 6,
    backend: Literal["auto", "docker", "bubblewrap"] = "auto",
    concurrency: Annotated[int, Field(ge=1)] = 24,
    shard_size: Annotated[int, Field(ge=1)] = 64,
    deadline_s: Annotated[float, Field(gt=0)] = 300,
    warm_boxes: Annotated[int, Field(ge=0)] = 0,
    keep_trees: bool = False,
    sampling_seed: int | None = None,
    prompts: PromptFolder | None = None,
    version: Annotated[int, Field(ge=1)] | None = None,
    run_id: str | None = None,
) -> Collected:
    """Roll out episodes of each problem and land them. Run again with the same run id, it does what is missing.

    Args:
        problems: How many problems of each kind, or of a set such as search/debian. Default: 16 search, 4 swe.
        samples: Episodes per problem: the size of a group.
        split: Problems to train on, or held-out ones.
        agent: Who acts: the model (policy), the oracle (expert), nobody (null), or a command-line agent: mini-swe-agent, or a
            file NAME.toml that defines one, see docs/agents.md.
        purpose: What for, as the lake will say: train, demonstration, eval:...
        seed: Another seed draws other problems.
        max_difficulty: Curriculum: only problems up to this difficulty, 0 to 1.
        temperature: Sampling temperature of the model.
        max_tokens: Tokens per model call.
        max_turns: Model calls per episode.
        backend: Where code runs. auto: Docker if an engine answers, else bubblewrap.
        concurrency: Episodes at a time.
        shard_size: Episodes per Prefect task; they land together.
        deadline_s: Seconds an episode may take.
        warm_boxes: Boxes kept started, so that episodes do not wait for them. It pays where processors are idle meanwhile.
        keep_trees: Keep the work tree as it is after every tool call, by content: its digest is in `actions.tree`, and an
            episode can begin from there.
        sampling_seed: Seeds the sampler's noise, for each sample of a problem another: two versions that are alike then say
            alike things, and are compared with fewer episodes. Default: noise of the engine's own.
        prompts: A folder with prompts of your own in place of the shipped ones, see docs/agents.md.
        version: The version whose weights answer, on whichever engine serves it; where none does, episodes fail. Default: what
            is served.
        run_id: Name an interrupted run to continue it. Default: derived from the flow run, so that a retry continues.
    """
    name, wanted = cast(agent, problems)
    draw = Draw(
        run_id=run_id or own_run_id(),
        problems=wanted,
        split=split,
        samples=samples,
        agent=name,
        purpose=purpose,
        seed=seed,
        max_difficulty=max_difficulty,
    )
    print(f"run {draw.run_id}: if this is interrupted, the same parameters with this run id continue it")
    sampling = Sampling(temperature=temperature, max_tokens=max_tokens, max_turns=max_turns)
    play = Play(
        sampling, backend, concurrency, deadline_s, agent, keep_trees, warm_boxes, sampling_seed, read(prompts), version
    )
    await same_prompts(draw.run_id, play.prompts)
    await rehearse(play)
    await load_problems(list(wanted))
    todo, known = dispatch(draw)
    await asyncio.to_thread(fetch, list(known.values()))
    progress = await Progress.begin(f"collecting {purpose}", len(todo))
    statuses: Counter[str] = Counter()
    landed = skipped = quarantined = 0
    for number, shard in enumerate(shards(todo, shard_size)):
        results = await roll_out.with_options(task_run_name=f"shard-{number}")(shard, known, play, progress)
        done = await asyncio.to_thread(land, unseen(results))
        landed, skipped = landed + done.episodes, skipped + len(done.skipped)
        quarantined += len(done.quarantined)
        statuses.update(result.episode.status for result in results)
    await ashow(
        acreate_table_artifact,
        key="episodes",
        table=[{"status": status, "episodes": count} for status, count in sorted(statuses.items())],
        description=f"Run {draw.run_id}: {landed} episodes landed, {quarantined} in quarantine",
    )
    if quarantined:
        print(f"ALARM: {quarantined} episodes are in quarantine; `lakeloop query 'from quarantine'` says why")
    if landed:
        tell("run.landed", f"run.{draw.run_id}", {"run_id": draw.run_id, "episodes": landed}, purpose=purpose)
    return Collected(
        run_id=draw.run_id, landed=landed, skipped=skipped, quarantined=quarantined, statuses=dict(statuses)
    )
