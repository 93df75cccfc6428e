"""Episodes of the lake as a log for off-policy evaluation: their rewards, and a row of tokens per model call to be scored."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from lakehouse.evaluation.estimators import Logged
from lakehouse.query import Connection, connect
from lakehouse.schema import TABLES

Of = Literal["success", "reward"]


class Unsuitable(ValueError):
    """The runs cannot be weighed; the message says why and what can be done."""


# Why an episode cannot be weighed; NULL where it can. A log-prob is after the temperature: other changes of the distribution
# (top_p, penalties) are the sampler's alone, and the candidate's would not be comparable.
_EPISODES = """
    with told as (
        select
            episode_id,
            bool_or(token_status <> 'exact') as missing,
            bool_or(logprobs is null and len(completion_token_ids) > 0) as unknown,
            bool_or(coalesce(list_sum(redacted), 0) > 0 or len(completion_token_ids) < len(weight_versions)) as gone,
            bool_or(
                coalesce((sampling ->> '$.top_p')::double, 1) < 1
                or coalesce((sampling ->> '$.top_k')::bigint, 0) > 0
                or coalesce((sampling ->> '$.min_p')::double, 0) > 0
                or coalesce((sampling ->> '$.presence_penalty')::double, 0) <> 0
                or coalesce((sampling ->> '$.frequency_penalty')::double, 0) <> 0
                or coalesce((sampling ->> '$.repetition_penalty')::double, 1) <> 1
            ) as altered,
            list(distinct coalesce((sampling ->> '$.temperature')::double, 1)) as temperatures
        from calls
        semi join (from episodes where list_contains($runs, run_id)) as asked using (episode_id)
        group by episode_id
    )

    select
        episodes.episode_id,
        episodes.problem_id,
        episodes.problem_kind,
        episodes.model_version,
        if($of = 'success', newest.outcome, newest.reward) as reward,
        newest.rubric,
        newest.rubric_version,
        coalesce(told.temperatures, []) as temperatures,
        case
            when episodes.mode <> 'policy' then 'demonstration'
            when episodes.model_name <> $name then 'other_model'
            when episodes.status not in ('ok', 'truncated', 'model_error') then 'failed'
            when newest.status is distinct from 'scored' then 'unscored'
            when told.missing then 'tokens_missing'
            when told.gone then 'tokens_redacted'
            when told.unknown then 'no_logprobs'
            when told.altered then 'other_sampling'
        end as reason
    from episodes
    left join newest_judgements as newest on episodes.episode_id = newest.episode_id and episodes.problem_kind = newest.rubric
    left join told on episodes.episode_id = told.episode_id
    where list_contains($runs, episodes.run_id)
    order by episodes.problem_id, episodes.sample_index, episodes.episode_id
"""

# One row per call that sampled something, in the shape of a training row; `earned` is what its episode's rubric gave the call.
_ROWS = """
    with given as (
        select episode_id, call_id, rubric, rubric_version, reward from latest_call_rewards
    )

    select
        weighed.position,
        calls.episode_id,
        calls.call_index,
        list_concat(prompt_token_ids, completion_token_ids) as input_ids,
        list_concat(list_resize([]::integer[], len(prompt_token_ids), 0), list_resize([]::integer[], len(completion_token_ids), 1))
            as loss_mask,
        list_concat(list_resize([]::float[], len(prompt_token_ids), 0), logprobs) as logprobs,
        list_concat(list_resize([]::integer[], len(prompt_token_ids), -1), weight_versions) as weight_versions,
        if($of = 'reward', coalesce(given.reward, 0), 0) as earned
    from calls
    inner join weighed using (episode_id)
    left join given
        on
            calls.episode_id = given.episode_id
            and calls.call_id = given.call_id
            and weighed.rubric = given.rubric
            and weighed.rubric_version = given.rubric_version
    where len(completion_token_ids) > 0
    order by weighed.position, calls.call_index
"""


@dataclass(frozen=True)
class Log:
    """Episodes that can be weighed, and the rows to score: one per call, as `training_rows` has them."""

    episodes: pl.DataFrame  # problem_id, problem_kind, model_version, reward, by position
    rows: pa.Table  # columns of `training_rows`; row_index counts up
    position: npt.NDArray[np.int64]  # per row, of its episode
    earned: npt.NDArray[np.float64]  # per row
    left_out: dict[str, int]  # episodes by why
    temperature: float


def gather(lake: str | None, name: str, run_ids: Sequence[str], *, of: Of = "success") -> Log:
    """The log of these runs of model `name`. Unsuitable where nothing is left, or temperatures are mixed, or 0."""
    asked = {"runs": list(run_ids), "name": name, "of": of}
    with connect(lake) as connection:
        every = connection.execute(_EPISODES, asked).pl()
        reasons = dict(every.drop_nulls("reason")["reason"].value_counts(sort=True).iter_rows())
        weighed = every.filter(pl.col("reason").is_null()).drop("reason").with_row_index("position")
        if weighed.is_empty():
            why = ", ".join(f"{count} {reason}" for reason, count in reasons.items()) or "there is none"
            raise Unsuitable(f"no episode of the runs {', '.join(run_ids)} of {name} can be weighed: {why}")
        temperature = _temperature(weighed)
        rows = _rows(connection, weighed, of)
    spec = TABLES["training_rows"].arrow
    columns = {
        "training_set_id": pa.array(["offpolicy"] * rows.num_rows, pa.string()),
        "row_index": pa.array(np.arange(rows.num_rows)),
        "group_id": rows["episode_id"],
        "problem_kind": weighed.to_arrow()["problem_kind"].take(rows["position"]),
        "reward": pa.array(np.zeros(rows.num_rows)),
        "advantage": pa.array(np.ones(rows.num_rows)),  # nothing is trained
        "advantages": pa.nulls(rows.num_rows, spec.field("advantages").type),
    }
    table = pa.table([(columns[f.name] if f.name in columns else rows[f.name]).cast(f.type) for f in spec], schema=spec)
    return Log(
        episodes=weighed.select("position", "problem_id", "problem_kind", "model_version", "reward"),
        rows=table,
        position=rows["position"].to_numpy().astype(np.int64),
        earned=rows["earned"].to_numpy().astype(np.float64),
        left_out=reasons,
        temperature=temperature,
    )


def ratios(log: Log, scored: Sequence[npt.NDArray[np.float64]]) -> Logged:
    """The log with the candidate's log-probs: `scored[i]` those of row i's sampled tokens, in nats.

    What an episode earned beyond its calls counts as earned by its last call.
    """
    taken = np.array([float(np.sum(one)) for one in scored]) - _sums(log.rows)
    steps: list[list[float]] = [[] for _ in range(log.episodes.height)]
    earned: list[list[float]] = [[] for _ in range(log.episodes.height)]
    for at, step, reward in zip(log.position.tolist(), taken.tolist(), log.earned.tolist(), strict=True):
        steps[at].append(step)
        earned[at].append(reward)
    rewards = log.episodes["reward"].to_numpy().astype(np.float64)
    for at, reward in enumerate(rewards.tolist()):
        if not steps[at]:
            steps[at], earned[at] = [0.0], [0.0]
        earned[at][-1] += reward - sum(earned[at])
    _, problems = np.unique(log.episodes["problem_id"].to_numpy(), return_inverse=True)
    return Logged(
        problems.astype(np.int64), rewards, [np.array(one) for one in steps], [np.array(one) for one in earned]
    )


def _sums(rows: pa.Table) -> npt.NDArray[np.float64]:
    """Each row's behaviour log-probs added up; those of its prompt are 0."""
    return np.array([float(np.sum(one)) for one in rows["logprobs"].to_numpy(zero_copy_only=False)], np.float64)


def _rows(connection: Connection, weighed: pl.DataFrame, of: Of) -> pa.Table:
    connection.register("weighed", weighed.select("episode_id", "position", "rubric", "rubric_version").to_arrow())
    return connection.execute(_ROWS, {"of": of}).to_arrow_table()


def _temperature(weighed: pl.DataFrame) -> float:
    found = weighed["temperatures"].explode().drop_nulls().unique().sort().to_list()
    if len(found) > 1:
        several = ", ".join(f"{value:g}" for value in found)
        raise Unsuitable(f"the runs mix the temperatures {several}, and log-probs are taken after it: name runs of one")
    if found == [0.0]:
        raise Unsuitable(
            "the runs were sampled at temperature 0, where every episode of a problem is the same and a log-prob says "
            "nothing of other policies: collect at a temperature above 0"
        )
    return float(found[0]) if found else 1.0
