"""What the gate measures of a version, from the lake: the two exams pair by pair, the radar, the ledger, the proof."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from lakehouse.evaluation.bootstrap import Interval, TooFewProblems, interval
from lakehouse.evaluation.metrics import TOTAL
from lakehouse.query import Connection, connect

Values = dict[str, float]  # by metric; one that cannot be measured is not there

# The episodes of one run. One that another version played is no evidence of this one.
_EPISODES = """
    select * replace (if(fate in ('scored', 'unscored') and model_version <> $version, 'mixed', fate) as fate)
    from evaluated
    where run_id = $run
"""

# Of each kind of problem and of all: what the episodes of one run say.
_OWN = f"""
    with severe as (
        select distinct episode_id from radar where severe
    ),

    told as (
        select episodes.*, severe.episode_id is not null as hacked, fate in ('scored', 'unscored') as played
        from ({_EPISODES}) as episodes
        left join severe using (episode_id)
    )

    select
        if(grouping(problem_kind) = 1, 'total', problem_kind) as scope,
        count(*) as episodes,
        avg(outcome) filter (fate = 'scored') as success,
        avg(reward) filter (fate = 'scored') as reward,
        avg(hacked::int) filter (played) as hack_rate,
        avg(tokens) filter (played) as tokens,
        avg((status = 'truncated')::int) filter (played) as truncated,
        avg((fate in ('failed', 'missing'))::int) as failed,
        avg((fate = 'unscored')::int) as unscored,
        avg((fate = 'mixed')::int) as mixed
    from told
    group by grouping sets ((problem_kind), ())
"""  # noqa: S608 - SQL made of SQL

# A row per problem: how many pairs, and what candidate and champion got in them.
_PAIRS = """
    select
        ours.problem_kind as scope,
        count(*) as pairs,
        sum(ours.outcome - theirs.outcome) as outcome,
        sum(ours.reward - theirs.reward) as reward
    from (from evaluated where run_id = $run and model_version = $version and fate = 'scored') as ours
    inner join (from evaluated where run_id = $against and model_version = $champion and fate = 'scored') as theirs
        on
            ours.problem_id = theirs.problem_id
            and ours.problem_edition is not distinct from theirs.problem_edition
            and ours.sample_index = theirs.sample_index
    group by ours.problem_kind, ours.problem_id, ours.problem_edition
    order by ours.problem_kind, ours.problem_id
"""

_VERSION = """
    with mine as (
        from model_versions where name = $name and version = $version
    ),

    accounted as (
        select
            abs((ledger ->> '$.sampled')::bigint - (ledger ->> '$.trained')::bigint
                - coalesce(list_sum((ledger -> '$.masked.*')::bigint[]), 0)
                - coalesce(list_sum((ledger -> '$.dropped.*')::bigint[]), 0)) as gap,
            n_trained_tokens
        from training_sets
        semi join mine using (training_set_id)
    ),

    held as (
        select sum(list_sum(loss_mask))::bigint as tokens
        from training_rows
        semi join mine using (training_set_id)
    ),

    hacked as (
        select avg((severe.episode_id is not null)::int) as share
        from (select distinct episode_id from training_rows semi join mine using (training_set_id)) as trained
        left join (select distinct episode_id from radar where severe) as severe using (episode_id)
    ),

    -- What each engine came to at last. One that has a trouble of its own says nothing of a version that another one serves.
    deployed as (
        select accepted, proof
        from deployments
        where name = $name and version = $version
        qualify row_number() over (partition by engine_url order by deployed_at desc) = 1
        order by accepted desc, deployed_at desc
        limit 1
    )

    select
        (select share from hacked) as training_hack_rate,
        -- an erasure may have taken rows since, which is for `tainted` to say
        (select gap + if(tainted.version is null, abs(n_trained_tokens - coalesce(tokens, 0)), 0) from accounted, held)
            as ledger_gap,
        (select accepted::int from deployed) as proven,
        (select (proof ->> '$.mean_difference')::double from deployed) as proof_mean,
        (select (proof ->> '$.max_difference')::double from deployed) as proof_max,
        (tainted.version is not null)::int as tainted
    from (select 1)
    left join (from tainted_versions where name = $name and version = $version) as tainted on true
"""


class Measurements(BaseModel):
    """What was measured. `values` by scope ("total", or a kind of problem) and metric."""

    model_config = ConfigDict(frozen=True)

    values: dict[str, Values]
    champion: dict[str, Values] = {}  # the champion's own exam, for the reader
    fates: dict[str, dict[str, int]] = {}  # "candidate", "champion": episodes by what became of them
    runs: dict[str, str] = {}  # "candidate", "champion": the run of the exam


def measure(
    lake: str | None,
    name: str,
    candidate: int,
    *,
    run: str | None,
    against: tuple[int, str] | None,
    facts: Mapping[str, float] | None = None,
    confidence: float = 0.95,
    resamples: int = 10_000,
    adjust_kinds: bool = False,
) -> Measurements:
    """Everything about a version whose exam is `run`, against the champion: its version and the run of its exam.

    None for an exam that was not sat. `facts` are metrics of the version that the lake does not hold.
    """
    sides = {"candidate": None if run is None else (candidate, run), "champion": against}
    sat = {side: one for side, one in sides.items() if one is not None}
    with connect(lake) as connection:
        about = _first(connection, _VERSION, {"name": name, "version": candidate}) | dict(facts or {})
        own = {side: _own(connection, *one) for side, one in sat.items()}
        fates = {side: _fates(connection, *one) for side, one in sat.items()}
        compared: dict[str, Values] = {}
        if run is not None and against is not None:
            asked = {"version": candidate, "run": run, "champion": against[0], "against": against[1]}
            table = connection.execute(_PAIRS, asked).pl()
            kinds = table["scope"].unique(maintain_order=True).to_list()
            shared = 1 - (1 - confidence) / len(kinds) if adjust_kinds and kinds else confidence
            sums = table.select("outcome", "reward", "pairs").to_numpy().astype(np.float64)
            compared = {TOTAL: _compared(sums, confidence, resamples)}
            for kind in own["candidate"].keys() - {TOTAL}:
                compared[kind] = _compared(sums[(table["scope"] == kind).to_numpy()], shared, resamples)
    ours, theirs = own.get("candidate", {TOTAL: {}}), own.get("champion", {})
    values = {
        scope: _without_count(ours[scope])
        | _beside(ours[scope], theirs.get(scope, {}), compared.get(scope, {}))
        | compared.get(scope, {})
        for scope in sorted(ours, key=lambda one: (one != TOTAL, one))
    }
    values[TOTAL] |= about
    champion = {scope: _without_count(told) for scope, told in theirs.items()}
    runs = {side: one for side, (_, one) in sat.items()}
    return Measurements(values=values, champion=champion, fates=fates, runs=runs)


def _compared(sums: np.ndarray, confidence: float, resamples: int) -> Values:
    """Of one scope. `sums` is [problems, (difference of outcomes, of rewards, pairs)]; no interval below two problems."""
    values: Values = {"pairs": float(sums[:, 2].sum()), "problems": float(len(sums))}
    for column, name in enumerate(("success_difference", "reward_difference")):
        try:
            found = interval(sums[:, [column, 2]], confidence=confidence, resamples=resamples)
        except TooFewProblems:
            continue
        values |= ends(name, found)
    return values


def ends(name: str, found: Interval) -> Values:
    """An interval under its metrics' names."""
    return {name: found.estimate, f"{name}_low": found.low, f"{name}_high": found.high}


def _beside(ours: Values, theirs: Values, compared: Values) -> Values:
    """What needs both sides and no pairs."""
    if not theirs:
        return {}
    values = {"paired": compared.get("pairs", 0.0) / ours["episodes"]} if ours.get("episodes") else {}
    for name, of in (("truncated_difference", "truncated"), ("hack_difference", "hack_rate")):
        if of in ours and of in theirs:
            values[name] = ours[of] - theirs[of]
    if theirs.get("tokens") and "tokens" in ours:
        values["tokens_ratio"] = ours["tokens"] / theirs["tokens"]
    return values


def _without_count(values: Values) -> Values:
    return {name: value for name, value in values.items() if name != "episodes"}


def _own(connection: Connection, version: int, run: str) -> dict[str, Values]:
    rows = connection.execute(_OWN, {"version": version, "run": run}).pl().to_dicts()
    return {row.pop("scope"): _measured(row) for row in rows}


def _fates(connection: Connection, version: int, run: str) -> dict[str, int]:
    counted = f"select fate, count(*) from ({_EPISODES}) group by fate order by fate"  # noqa: S608 - SQL of our own
    return dict(connection.execute(counted, {"version": version, "run": run}).fetchall())


def _first(connection: Connection, sql: str, values: Mapping[str, Any]) -> Values:
    (row,) = connection.execute(sql, values).pl().to_dicts()
    return _measured(row)


def _measured(row: Mapping[str, Any]) -> Values:
    return {name: float(value) for name, value in row.items() if value is not None}
