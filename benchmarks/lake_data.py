"""Made-up trajectories of a realistic shape, as Arrow tables, fast enough to make a hundred million tokens of.

Five to fifteen calls an episode, as agents with tools have. A prompt is the whole conversation so far: 600 tokens that all
share, the question, every answer and every observation. Token ids are spread like words (Zipf over a vocabulary of 151,000),
and two in five are of common phrases: Zstandard makes 1.7 bytes of an id and 0.38 of a character, as it does of the
characters of Python code and documentation. A quarter of the log-probs are those of tokens that were all but certain, a
handful of float32 steps below 0, the others spread over six decades.

A few batches are made in full; the others are these with other episode ids, a shift of all token ids and log-probs in another
place, so that no batch compresses by knowing another.
"""

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakehouse.schema import TABLES

VOCABULARY = 151_000
SHARED = 600  # tokens of the system message
MODEL = "bench"
GROUP = 8  # samples of a problem
PHRASES, PHRASE = 5_000, 8  # how many phrases are common, and how many tokens each has
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
Ints = npt.NDArray[np.int32]
Tables = dict[str, pa.Table]


@dataclass(frozen=True)
class Shape:
    """How long things are, in tokens: (least, most)."""

    calls: tuple[int, int] = (5, 15)
    answer: tuple[int, int] = (120, 380)
    question: tuple[int, int] = (60, 300)
    observation: tuple[int, int] = (100, 400)
    shared: int = SHARED


SHORT = Shape(calls=(1, 2), answer=(20, 60), question=(10, 30), observation=(20, 60), shared=20)


class Trajectories:
    """Batches as a shard lands them, by number; the same seed gives the same ones."""

    def __init__(self, *, episodes: int, seed: int = 0, made: int = 4, shape: Shape | None = None) -> None:
        if episodes % GROUP:
            raise ValueError(f"{episodes} episodes are no whole groups of {GROUP}")
        self._random = np.random.default_rng(seed)
        self._shape = shape or Shape()
        self._episodes = episodes
        words = [hashlib.md5(str(i).encode()).hexdigest()[: 1 + i % 6] + " " for i in range(30_000)]
        self._words = np.array(words, dtype=object)
        self._phrases = self._zipf(PHRASES * PHRASE).reshape(PHRASES, PHRASE)
        self._shared = self._ids(self._shape.shared)
        self._made = [self._batch() for _ in range(made)]

    def batch(self, number: int, *, version: int = 1, per_run: int = 4) -> Tables:
        """`episodes` and its children. A run is `per_run` batches; later batches are later in time."""
        base = self._made[number % len(self._made)]
        run = f"run-{number // per_run:06d}"
        names = np.array([_name(number, i) for i in range(self._episodes)], dtype=object)
        at = BEGAN + timedelta(minutes=number)
        shift, turn = number * 7919 % VOCABULARY, number * 104_729
        tables = {}
        for table, data in base.items():
            columns: dict[str, Any] = {}
            of = names[data["episode_id"].to_numpy()]
            for field in TABLES[table].arrow:
                name = field.name
                if name == "episode_id":
                    columns[name] = pa.array(of, field.type)
                elif name in ("started_at", "ended_at", "created_at"):
                    columns[name] = pa.array([at] * data.num_rows, field.type)
                elif name == "run_id":
                    columns[name] = pa.array([run] * data.num_rows, field.type)
                elif name in ("group_id", "problem_id"):
                    groups = [f"{number}-{i // GROUP}" for i in range(self._episodes)]
                    columns[name] = pa.array([f"{name[:2]}-{one}" for one in groups], field.type)
                elif name in ("prompt_token_ids", "completion_token_ids"):
                    columns[name] = _mapped(data[name], lambda ids: (ids + shift) % VOCABULARY)
                elif name == "logprobs":
                    columns[name] = _mapped(data[name], lambda values: np.roll(values, turn))
                elif name == "weight_versions":
                    columns[name] = _mapped(data[name], lambda values: np.full_like(values, version))
                elif name in ("call_id", "parent_call_id"):
                    columns[name] = _joined(of, data[name])
                else:
                    columns[name] = data[name]
            tables[table] = pa.table([columns[f.name] for f in TABLES[table].arrow], schema=TABLES[table].arrow)
        return tables

    def problems(self, batches: int) -> pa.Table:
        """The problems that the episodes of the first batches are of."""
        ids = [f"pr-{number}-{group}" for number in range(batches) for group in range(self._episodes // GROUP)]
        return _table("problems", [{"problem_id": one} for one in ids], {})

    def _ids(self, n: int) -> Ints:
        ids = self._zipf(n)
        if n > PHRASE:
            which = (PHRASES ** self._random.random(n * 2 // (5 * PHRASE)) - 1).astype(np.int32)
            where = self._random.integers(0, n - PHRASE, len(which))
            ids[where[:, None] + np.arange(PHRASE)] = self._phrases[which]
        return ids

    def _zipf(self, n: int) -> Ints:
        """Zipf's law over the vocabulary."""
        return np.minimum(VOCABULARY ** self._random.random(n) - 1, VOCABULARY - 1).astype(np.int32)

    def _logprobs(self, n: int) -> npt.NDArray[np.float32]:
        spread = -np.exp(self._random.normal(-3.5, 3.0, n))
        certain = -np.round(np.exp(self._random.normal(1, 1, n))) * 2.0**-23
        return np.where(self._random.random(n) < 0.25, certain, spread).astype(np.float32)

    def _between(self, span: tuple[int, int]) -> int:
        return int(self._random.integers(span[0], span[1] + 1))

    def _text(self, ids: Ints) -> str:
        return "".join(self._words[ids % len(self._words)])

    def _batch(self) -> Tables:
        rows: dict[str, list[dict[str, Any]]] = {"episodes": [], "calls": [], "actions": [], "evidence": []}
        tokens: dict[str, list[npt.NDArray[Any]]] = {"prompt": [], "answer": []}
        for number in range(self._episodes):
            self._episode(number, rows, tokens)
        n = [len(one) for one in tokens["answer"]]
        lists = {
            "prompt_token_ids": _listed([len(one) for one in tokens["prompt"]], np.concatenate(tokens["prompt"])),
            "completion_token_ids": _listed(n, np.concatenate(tokens["answer"])),
            "logprobs": _listed(n, self._logprobs(sum(n))),
            "weight_versions": _listed(n, np.ones(sum(n), np.int32)),
        }
        return {table: _table(table, rows[table], lists if table == "calls" else {}) for table in rows}

    def _episode(
        self, number: int, rows: dict[str, list[dict[str, Any]]], tokens: dict[str, list[npt.NDArray[Any]]]
    ) -> None:
        shape = self._shape
        prompt = np.concatenate([self._shared, self._ids(self._between(shape.question))])
        messages = [
            {"role": "system", "content": self._text(self._shared)},
            {"role": "user", "content": self._text(prompt[shape.shared :])},
        ]
        own = {"episode_id": number, "attempt_id": "a0"}
        sampled = prompted = 0
        calls = self._between(shape.calls)
        for index in range(calls):
            answer = self._ids(self._between(shape.answer))
            observation = self._ids(self._between(shape.observation))
            said = {"role": "assistant", "content": self._text(answer)}
            rows["calls"].append(
                own
                | {"call_id": f"c{index}", "parent_call_id": f"c{index - 1}" if index else None, "call_index": index}
                | {"request_messages": json.dumps(messages), "response_message": json.dumps(said)}
            )
            text = self._text(observation)
            rows["actions"].append(own | {"action_index": index, "observation": text})
            tokens["prompt"].append(prompt)
            tokens["answer"].append(answer)
            sampled, prompted = sampled + len(answer), prompted + len(prompt)
            prompt = np.concatenate([prompt, answer, observation])
            messages = [*messages, said, {"role": "tool", "content": text}]
        solved = bool(self._random.random() < 0.4)
        answer_fact = {"given": "x", "accepted": ["x"], "match": solved}
        rows["evidence"].append(own | {"name": "answer", "value": json.dumps(answer_fact)})
        rows["evidence"].append(own | {"name": "retrieval", "value": json.dumps({"hit": True})})
        rows["episodes"].append(
            own
            | {"sample_index": number % GROUP, "n_calls": calls}
            | {"n_prompt_tokens": prompted, "n_completion_tokens": sampled}
        )


def _name(batch: int, number: int) -> str:
    return "ep-" + hashlib.sha256(f"{batch}/{number}".encode()).hexdigest()[:24]


_DULL: dict[str, Any] = {
    "session_id": "s", "segment": 0, "token_status": "exact", "token_route": "generate", "status": "ok",
    "finish_reason": "stop", "tools": "[]", "sampling": '{"temperature":1.0}', "template_digest": "d" * 16,
    "engine_version": "0.1", "latency_s": 1.25, "call_id": "c0", "tool": "search", "arguments": '{"query":"x"}',
    "is_error": False, "duration_s": 1.5, "producer": "bench 1", "problem_kind": "search", "split": "train",
    "agent": "search", "backend": "docker", "mode": "policy", "purpose": "train", "model_name": MODEL,
    "model_version": 1, "run_id": "", "group_id": "", "problem_id": "", "kind": "search", "source": "bench", "title": "t",
    "prompt": "p", "spec": "{}", "licence": "CC0-1.0", "allowed_uses": ["training"], "difficulty": 0.5,
    "oracle_passed": True, "null_failed": True,
}  # fmt: skip


def _table(table: str, rows: list[dict[str, Any]], lists: dict[str, pa.Array]) -> pa.Table:
    """Columns of the table; `episode_id` is still a number within the batch."""
    columns = {}
    for field in TABLES[table].arrow:
        name = field.name
        if name in lists:
            columns[name] = lists[name].cast(field.type)
        elif name == "episode_id":
            columns[name] = pa.array([row[name] for row in rows], pa.int64())
        elif name in rows[0]:
            columns[name] = pa.array([row[name] for row in rows], field.type)
        elif name in _DULL:
            columns[name] = pa.array([_DULL[name]] * len(rows), field.type)
        elif pa.types.is_timestamp(field.type):
            columns[name] = pa.array([BEGAN] * len(rows), field.type)
        else:
            columns[name] = pa.nulls(len(rows), field.type)
    return pa.table(columns)


def _listed(lengths: list[int], values: npt.NDArray[Any]) -> pa.ListArray:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))


def _mapped(column: pa.ChunkedArray, change: Any) -> pa.ListArray:
    lists = column.combine_chunks()
    return pa.ListArray.from_arrays(lists.offsets, pa.array(change(lists.values.to_numpy()), lists.values.type))


def _joined(names: npt.NDArray[Any], column: pa.ChunkedArray) -> pa.Array:
    held = column.to_pylist()
    return pa.array(
        [None if one is None else f"{name}-{one}" for name, one in zip(names, held, strict=True)], pa.string()
    )
