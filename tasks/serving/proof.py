"""The weight-sync proof: an engine that says it serves version V really serves V's weights.

On fixed token sequences the served log-probs must agree with those the trainer computes from the same weights, and must
have moved away from those served before. The second half catches the reload that answers OK and changes nothing; it is only
asked for where the two versions differ on the probe at all.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from tasks.serving.engine import Engine
from tasks.serving.errors import ProbeError

Scores = list[list[float]]  # per sequence the log-probs of its tokens after the first, in nats

MEAN_BOUND = 2e-3  # nats; measured with float32 on both sides: 2e-7 on average, 1e-6 at most
MAX_BOUND = 2e-2
SAME = 3e-5  # nats on average; weights closer to those before than this can not be told apart from them
CLEAR = 3.0  # how many times closer to the new weights than the old ones are


class Proof(BaseModel):
    """What was compared and what came out. Differences are absolute, in nats per token."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int
    sequences: int
    tokens: int
    mean_difference: float  # served against the trainer's
    max_difference: float
    mean_movement: float | None  # served against served before; None when there was no version before
    changed: bool | None  # whether the new weights can be told apart from those before on this probe
    passed: bool
    reason: str  # one sentence, for people


def served(engine: Engine, sequences: Sequence[Sequence[int]]) -> Scores:
    """The log-probs the engine gives to the probe now."""
    return [engine.score(sequence) for sequence in sequences]


def expected(folder: Path, sequences: Sequence[Sequence[int]], *, deadline_s: float = 300.0) -> Scores:
    """The log-probs the trainer gives to the probe with the weights in `folder`; in its own process: it needs torch."""
    with tempfile.TemporaryDirectory(prefix="lakeloop-probe-") as scratch:
        probe, out = Path(scratch) / "probe.json", Path(scratch) / "scores.json"
        probe.write_text(json.dumps([list(sequence) for sequence in sequences]))
        command = [
            sys.executable,
            "-m",
            "tasks.training.score",
            "--model",
            str(folder),
            "--probe",
            str(probe),
            "--out",
            str(out),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=deadline_s, check=False)
        except subprocess.TimeoutExpired as error:
            raise ProbeError(f"scoring the probe with {folder} took longer than {deadline_s:.0f} s") from error
        if done.returncode != 0:
            raise ProbeError(f"scoring the probe with {folder} failed:\n{done.stderr[-2000:]}")
        scores: Scores = json.loads(out.read_text())
        return scores


def prove(now: Scores, trained: Scores, before: Scores | None, *, version: int) -> Proof:
    """Judge the log-probs served `now` against the trainer's and those served `before` the reload."""
    gaps = differences(now, trained)
    mean, largest = sum(gaps) / len(gaps), max(gaps)
    moved = None if before is None else _mean(now, before)
    due = None if before is None else _mean(trained, before)
    passed = False
    if mean > MEAN_BOUND or largest > MAX_BOUND:
        reason = f"served log-probs differ from the trainer's by {mean:.2g} nats on average, {largest:.2g} at most"
    elif due is not None and due > SAME and mean > due / CLEAR:
        reason = f"served log-probs did not move by the {due:.2g} nats they should have: the engine has the old weights"
    elif due is not None and due <= SAME:
        passed = True
        reason = (
            "served log-probs agree with the trainer's, and these weights give the same ones as those served before"
        )
    else:
        passed = True
        reason = f"served log-probs agree with the trainer's within {largest:.2g} nats"
    return Proof(
        version=version,
        sequences=len(now),
        tokens=len(gaps),
        mean_difference=mean,
        max_difference=largest,
        mean_movement=moved,
        changed=None if due is None else due > SAME,
        passed=passed,
        reason=reason,
    )


def _mean(left: Scores, right: Scores) -> float:
    found = differences(left, right)
    return sum(found) / len(found)


def differences(left: Scores, right: Scores) -> list[float]:
    """Absolute differences in nats, token by token, of two scorings of one probe."""
    if [len(row) for row in left] != [len(row) for row in right] or not any(left):
        raise ValueError("the two sets of log-probs are not of the same probe, or the probe is empty")
    return [abs(a - b) for row_a, row_b in zip(left, right, strict=True) for a, b in zip(row_a, row_b, strict=True)]
