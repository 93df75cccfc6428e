"""Judge: a model or a function measures episodes that have landed; its verdicts become evidence."""

import asyncio
from typing import Annotated

from prefect import flow
from prefect.artifacts import acreate_table_artifact
from pydantic import BaseModel, Field

from tasks.judge import Asking, ask, check, find
from tasks.label import selected
from tasks.progress import Progress
from tasks.showing import ashow


class Judged(BaseModel):
    """The chosen episodes by what this judge has said of them, now and before; `written` verdicts are new."""

    producer: str
    written: int
    scored: int
    refused: int
    malformed: int
    missing: int


@flow(name="judge", log_prints=True)
async def judge(
    function: str | None = None,
    endpoint: str | None = None,
    model: str | None = None,
    prompt: str = "solved",
    evidence: str = "judge",
    run_ids: list[str] | None = None,
    where: str = "true",
    concurrency: Annotated[int, Field(ge=1, le=256)] = 8,
    shard_size: Annotated[int, Field(ge=1)] = 64,
    deadline_s: Annotated[float, Field(gt=0)] = 60,
    attempts: Annotated[int, Field(ge=1)] = 2,
    max_tokens: Annotated[int, Field(ge=1)] = 512,
    max_chars: Annotated[int, Field(ge=100)] = 12_000,
    structured: bool = True,
    max_unscored: Annotated[float, Field(ge=0, le=1)] = 0.2,
) -> Judged:
    """Have a model or a Python function judge episodes; a rubric such as judge@1 then makes rewards of the evidence.

    Each judge says something of an episode once: a run that is started again goes on with the rest. A judge is another one
    where its model, weights, prompt or settings are others. Episodes that failed by no fault of the policy are not judged.

    Args:
        function: Judge by a Python function, such as my_package.judges:concise, called with a Trajectory. Default: by a model.
        endpoint: An OpenAI-compatible API, up to /v1; its key is the file keys/judge of the home folder. What episodes hold
            is sent there. Default: the engine of this stack.
        model: The model's name there. Default: the one that this stack serves.
        prompt: What it is asked: a file with $problem, $transcript, $answer or $evidence in it, or a shipped one's name.
        evidence: The name of the evidence. Another name for another question.
        run_ids: Runs to judge. Default: all.
        where: Which of their episodes: SQL over the columns of `episodes`.
        concurrency: Episodes that are judged at a time.
        shard_size: Episodes per Prefect task; their verdicts are written together.
        deadline_s: Seconds for one verdict, with every retry.
        attempts: How often a model is asked where its answer is no verdict.
        max_tokens: Tokens of an answer.
        max_chars: Characters of what stands for one $name; of a longer text the middle is left out.
        structured: Ask for an answer by a JSON schema. false is for endpoints that have no response_format.
        max_unscored: Share of the chosen episodes that may be left without a score. Where it is more, the run fails.
    """
    asking = Asking(
        evidence=evidence,
        function=function,
        endpoint=endpoint,
        model=model,
        prompt=prompt,
        structured=structured,
        concurrency=concurrency,
        deadline_s=deadline_s,
        attempts=attempts,
        max_tokens=max_tokens,
        max_chars=max_chars,
    )
    chosen = selected(run_ids or [], where)
    producer, todo = await asyncio.to_thread(find, asking, chosen)
    progress = await Progress.begin(f"judging as {evidence}", len(todo))
    written = 0
    for start in range(0, len(todo), shard_size):
        shard = todo[start : start + shard_size]
        written += await ask.with_options(task_run_name=f"shard-{start // shard_size}")(
            shard, asking, producer, progress
        )
    found = await asyncio.to_thread(check, asking, producer, chosen, written, max_unscored)
    judged = Judged(producer=producer, written=written, **vars(found))
    await ashow(
        acreate_table_artifact, key="judged", table=[judged.model_dump()], description=f"{evidence} by {producer}"
    )
    return judged
