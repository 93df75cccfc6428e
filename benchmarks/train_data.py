"""Recorded groups for the training benchmark: the same sequences for the trainer and for what it is measured against."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel

from lakehouse.records import TrainingRow


class Shape(BaseModel):
    """One optimiser step: so many groups of samples, each of one prompt, with completions of varying length."""

    groups: int
    size: int
    prompt: int  # tokens
    shortest: int
    longest: int

    @property
    def rows(self) -> int:
        return self.groups * self.size

    @property
    def longest_row(self) -> int:
        return self.prompt + self.longest


class Recorded(BaseModel):
    """`completions[i]` belongs to `prompts[i // size]`; rewards alternate, so that every group has an advantage."""

    prompts: list[list[int]]
    completions: list[list[int]]
    size: int

    @property
    def tokens(self) -> int:
        """Trained ones: all of the completions."""
        return sum(len(one) for one in self.completions)


def recorded(shape: Shape, vocabulary: int, steps: int, seed: int = 0) -> Recorded:
    """Random token ids for `steps` steps: what a token is does not change what it costs."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(shape.shortest, shape.longest + 1, shape.rows * steps)
    return Recorded(
        prompts=[rng.integers(8, vocabulary, shape.prompt).tolist() for _ in range(shape.groups * steps)],
        completions=[rng.integers(8, vocabulary, length).tolist() for length in lengths],
        size=shape.size,
    )


def write_rows(held: Recorded, file: Path) -> None:
    """The rows of a training set, as the flow exports them."""
    pq.write_table(pa.Table.from_pylist([_row(held, i).model_dump() for i in range(len(held.completions))]), file)


def _row(held: Recorded, i: int) -> TrainingRow:
    prompt, completion = held.prompts[i // held.size], held.completions[i]
    before, after = [0] * len(prompt), [1] * len(completion)
    return TrainingRow(
        training_set_id="bench",
        row_index=i,
        episode_id=f"ep-{i}",
        group_id=f"gr-{i // held.size}",
        problem_kind="search",
        input_ids=prompt + completion,
        loss_mask=before + after,
        logprobs=[0.0] * len(prompt) + [-1.0] * len(completion),
        weight_versions=[-1] * len(prompt) + after,
        reward=float(i % 2),
        advantage=1.0 if i % 2 else -1.0,
    )
