"""Which of an outside application's sessions the lake does not have, and what it knows of their problems."""

from collections.abc import Collection, Mapping, Sequence

import polars as pl
import pyarrow as pa

from lakehouse import store
from lakehouse.privacy.door import NO_TOKENIZER
from lakehouse.query import connect
from lakehouse.records import Problem
from lakehouse.rubrics import current
from lakehouse.schema import TABLES
from lakehouse.write import Writer


def missing(lake: str | None, tasks: Mapping[str, str]) -> set[str]:
    """Of these episode ids, each with its session's task id, those that have neither landed nor been refused.

    One that was refused because its model's tokenizer was not known is tried again: it may be known by now.
    A session whose task is a dispatched episode belongs to a flow, which lands it itself.
    """
    wanted = pl.DataFrame(
        {"episode_id": list(tasks), "task_id": list(tasks.values())}, schema=["episode_id", "task_id"]
    )
    with connect(lake) as connection:
        connection.register("wanted", wanted.cast(pl.String).to_arrow())
        rows = connection.execute(
            """
            select episode_id
            from wanted
            anti join bronze.episodes as landed using (episode_id)
            anti join erased_episodes as erased on erased.stone = 'er-' || substr(sha256(wanted.episode_id), 1, 24)
            anti join (
                from bronze.quarantine where table_name = 'episodes' and not starts_with(rule, $1)
            ) as refused using (episode_id)
            anti join bronze.dispatches as own on own.episode_id = wanted.task_id
            """,
            [NO_TOKENIZER],
        ).fetchall()
    return {episode_id for (episode_id,) in rows}


def settled(lake: str | None, episode_ids: Collection[str]) -> tuple[set[str], set[str]]:
    """Of these episode ids, those that have landed and nothing more, and those that somebody may still look into.

    The latter are in quarantine, also beside the one that landed, or were dispatched and never landed.
    """
    wanted = pl.DataFrame({"episode_id": sorted(episode_ids)}, schema={"episode_id": pl.String}).to_arrow()
    with connect(lake) as connection:
        connection.register("wanted", wanted)
        rows = connection.execute(
            """
            select
                episode_id,
                episode_id in (select episode_id from bronze.episodes) as landed,
                episode_id in (select episode_id from bronze.quarantine where episode_id is not null) as refused,
                episode_id in (select episode_id from bronze.dispatches) as dispatched
            from wanted
            """
        ).fetchall()
    done = {one for one, landed, refused, _ in rows if landed and not refused}
    return done, {one for one, _, refused, dispatched in rows if refused or dispatched} - done


def problems(lake: str | None, problem_ids: Sequence[str]) -> dict[str, Problem]:
    """The newest edition of each of these problems that the lake has."""
    with connect(lake) as connection:
        rows = connection.execute(
            "select * from problems where list_contains($1, problem_id)", [list(problem_ids)]
        ).pl()
    return {row["problem_id"]: Problem(**row) for row in rows.to_dicts()}


def reward_calls(lake: str | None) -> int:
    """Append to `call_rewards` what applications gave single calls, as evidence has it; how many are new.

    Every reward is a row, a correction as well: the newest holds. Repeating it adds nothing.
    """
    rubric, _, version = current("external").partition("@")
    where = store.location(lake)
    with connect(where, pinned=store.versions(where)) as connection:
        news = connection.execute(
            """
            with given as (
                select
                    episode_id,
                    unnest(from_json(
                        value -> '$.rows',
                        '[{"call": "VARCHAR", "reward": "DOUBLE", "reason": "VARCHAR", "given_at": "TIMESTAMPTZ"}]'
                    )) as given
                from evidence
                where name = 'rewards'
            )

            select distinct
                episode_id,
                given.call as call_id,
                $1 as rubric,
                $2::bigint as rubric_version,
                given.reward,
                given.reason,
                given.given_at as labelled_at
            from given
            where given.call is not null
                and not exists (
                    from call_rewards as known
                    where known.episode_id = given.episode_id
                        and known.call_id = given.call
                        and known.rubric = $1
                        and known.rubric_version = $2
                        and known.labelled_at = given.given_at
                )
            order by all
            """,
            [rubric, int(version)],
        ).to_arrow_table()
    if news.num_rows:
        schema = TABLES["call_rewards"].arrow
        rows = pa.table([news[field.name].cast(field.type) for field in schema], schema=schema)
        Writer(lake).append_arrow("call_rewards", rows)
    return int(news.num_rows)
