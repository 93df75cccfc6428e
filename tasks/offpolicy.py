"""Off-policy: the Prefect tasks that score stored episodes under another version and estimate what it would earn."""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from lakehouse.evaluation import logged, offpolicy
from lakehouse.evaluation.offpolicy import Estimated, TooFewEffectiveSamples
from tasks.registry.versions import Registry
from tasks.showing import show
from tasks.stack.settings import Settings
from tasks.training.config import TrainConfig

LONGEST = 1 << 20  # tokens of a call; the model's own context is what counts


class ScoringFailed(RuntimeError):
    """The version's log-probs could not be computed; the message holds the last lines of what tried."""


@task(cache_policy=NO_CACHE)
def estimate(
    version: int,
    run_ids: Sequence[str],
    *,
    of: logged.Of = "success",
    min_effective_samples: float,
    confidence: float = 0.95,
    deadline_s: float = 1800,
) -> Estimated:
    """What a version would earn on the episodes of these runs. Unsuitable, TooFewEffectiveSamples, ScoringFailed."""
    settings = Settings()
    folder = Registry(settings.mlflow_url).intact(settings.model_name, version)
    log = logged.gather(None, settings.model_name, run_ids, of=of)
    try:
        found = offpolicy.evaluate(
            log,
            scored(log, folder, deadline_s),
            name=settings.model_name,
            version=version,
            run_ids=run_ids,
            of=of,
            min_effective_samples=min_effective_samples,
            confidence=confidence,
        )
    except TooFewEffectiveSamples as few:
        show(create_markdown_artifact, key="off-policy", markdown=f"**No estimate.** {few}")
        raise
    show(create_markdown_artifact, key="off-policy", markdown=page(found))
    return found


async def estimated(
    version: int, run_ids: Sequence[str], *, min_effective_samples: float, confidence: float
) -> Estimated:
    """The estimate, or where it is worth too little what is known besides: without any estimate."""
    try:
        return await asyncio.to_thread(
            estimate, version, run_ids, min_effective_samples=min_effective_samples, confidence=confidence
        )
    except TooFewEffectiveSamples as few:
        print(few)
        return few.estimated


def scored(log: logged.Log, folder: Path, deadline_s: float) -> list[npt.NDArray[np.float64]]:
    """The log-probs of each row's sampled tokens under the model in `folder`, in a process of its own: it needs torch."""
    with tempfile.TemporaryDirectory(prefix="lakeloop-offpolicy-") as scratch:
        rows, told, out = (Path(scratch) / name for name in ("rows.parquet", "config.json", "scored.parquet"))
        pq.write_table(log.rows, rows)
        config = TrainConfig.model_validate(
            {
                "objective": {"name": "grpo"},  # whose log-probs are after the temperature
                "model": folder,
                "rows": rows,
                "output": Path(scratch) / "nothing",
                "learning_rate": 0,
                "temperature": log.temperature,
                "max_seq_len": LONGEST,
            }
        )
        told.write_text(config.model_dump_json())
        command = [sys.executable, "-m", "tasks.training.rescore", "--config", str(told), "--out", str(out)]
        environment = os.environ | {"TOKENIZERS_PARALLELISM": "false"}
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=deadline_s, check=False, env=environment
            )
        except subprocess.TimeoutExpired:
            raise ScoringFailed(f"scoring {log.rows.num_rows} calls took longer than {deadline_s:.0f} s") from None
        if done.returncode != 0:
            raise ScoringFailed(f"scoring with {folder} failed:\n{done.stderr[-2000:]}")
        found = pq.read_table(out).sort_by("row_index")["logprobs"].to_numpy(zero_copy_only=False)
    return [one.astype(np.float64) for one in found]


def page(found: Estimated) -> str:
    """The estimate for people, as Markdown."""
    lines = [
        f"# {found.name} version {found.version}, from {found.episodes} episodes of "
        + ", ".join(f"version {key} ({count})" for key, count in found.sampled_by.items()),
        "",
        f"They are worth **{found.effective_samples:.1f}** episodes of its own. Observed {found.of}: {found.observed:.3f}.",
        "",
        f"| estimator | {found.of} | {found.confidence:.0%} interval | difference | {found.confidence:.0%} interval |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {method} | {one.value:.3f} | {one.low:.3f} to {one.high:.3f} | {one.difference:+.3f} | "
        f"{one.difference_low:+.3f} to {one.difference_high:+.3f} |"
        for method, one in found.estimates.items()
    ]
    lines += [
        "",
        f"Mean weight {found.mean_weight:.3f} (1 but for chance), greatest share of one episode {found.largest_share:.1%}, "
        f"{found.divergence:.2g} nats per token between both over {found.tokens} tokens.",
    ]
    if found.left_out:
        lines.append("Left out: " + ", ".join(f"{count} {reason}" for reason, count in found.left_out.items()) + ".")
    return "\n".join(lines)
