"""What an erasure is about to remove, and the file that remembers it until it is done.

The file is the only place where the ids and the subject's name stay while an erasure is under way: mode 0600, under
`<home>/erasures/`, removed at the end. After a crash it says where to go on.
"""

import os
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from pathlib import Path

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from lakehouse import store
from lakehouse.erased import erased_among
from lakehouse.governance.probes import Probes
from lakehouse.governance.purge import Rule, rows_with
from lakehouse.home import home
from lakehouse.query import Connection, connect
from lakehouse.records import digest, now
from lakehouse.schema import TABLES

BY_EPISODE = [name for name, table in TABLES.items() if "episode_id" in table.record.model_fields]


class NothingToErase(LookupError):
    """Neither the lake nor its quarantine nor the gateway's journal has anything of this subject or these episodes."""


class BadRequest(ValueError):
    """An erasure that cannot be done as it is asked for."""


class UnknownErasure(LookupError):
    """No erasure of this id is under way in this home folder."""


class Plan(BaseModel):
    """One erasure, from the request to its end. By table, `rows` would go now and `removed` are gone."""

    model_config = ConfigDict(extra="forbid")

    erasure_id: str
    lake: str
    subject: str | None
    asked: list[str]  # episode ids that were named
    reason: str
    requested_by: str
    begun_at: datetime
    episode_ids: list[str] = []
    sessions: list[tuple[str, str]] = []  # of the gateway: session id, and the episode it was for
    problem_ids: list[str] = []
    trees: list[str] = []  # work trees that no other episode recorded
    training_sets: list[str] = []
    tainted: list[str] = []  # "name@version"
    rows: dict[str, int] = {}
    removed: dict[str, int] = {}
    files: int = 0
    lost: dict[str, list[tuple[int, int]]] = {}
    probes: Probes | None = None

    @property
    def path(self) -> Path:
        return folder() / f"{self.erasure_id}.plan.json"

    def save(self) -> None:
        """Whole or not at all, readable by its owner only."""
        folder().mkdir(parents=True, exist_ok=True, mode=0o700)
        part = self.path.with_suffix(".part")
        with os.fdopen(os.open(part, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w") as file:
            file.write(self.model_dump_json())
            file.flush()
            os.fsync(file.fileno())
        part.replace(self.path)

    def rules(self) -> dict[str, Rule]:
        """Which rows go, by table."""
        rules = {name: rows_with(name, "episode_id", self.episode_ids) for name in BY_EPISODE}
        if self.problem_ids:
            rules["problems"] = rows_with("problems", "problem_id", self.problem_ids)
        return rules

    @property
    def names(self) -> list[str]:
        """The words that must not be left anywhere."""
        return [*self.episode_ids, *self.problem_ids, *([self.subject] if self.subject else [])]


def folder() -> Path:
    return home().root / "erasures"


def under_way() -> list[Plan]:
    """Erasures that were begun or planned in this home folder and have not ended, the oldest first."""
    plans = [Plan.model_validate_json(path.read_text()) for path in folder().glob("*.plan.json")]
    return sorted(plans, key=lambda plan: plan.begun_at)


def load(erasure_id: str) -> Plan:
    """An erasure under way. UnknownErasure names those there are."""
    found = {plan.erasure_id: plan for plan in under_way()}
    if erasure_id not in found:
        there = ", ".join(found) or "none"
        raise UnknownErasure(f"no erasure {erasure_id!r} is planned or under way here; there are: {there}")
    return found[erasure_id]


def plan(
    lake: str | None,
    *,
    subject: str | None = None,
    episode_ids: Sequence[str] = (),
    reason: str,
    requested_by: str,
    recorded: Callable[[Plan], Collection[str]] = lambda _: (),
) -> Plan:
    """What erasing a subject, or these episodes, would remove. Writes nothing. An unfinished erasure of the same goes on.

    `recorded` tells the episodes of these that the gateway's journal has, also where they have not landed.
    NothingToErase where there is nothing, or only what was erased before.
    """
    where, asked = store.location(lake), sorted(set(episode_ids))
    if (subject is None) == (not asked):
        raise BadRequest("name either a subject or episodes, not both")
    if subject is not None and subject in reason:
        raise BadRequest(
            "the reason names the subject, and it stays: give one that does not, such as a ticket's number"
        )
    earlier = next((p for p in under_way() if (p.lake, p.subject, p.asked) == (where, subject, asked)), None)
    made = earlier or Plan(
        erasure_id="ee-" + digest(where, subject or "", *asked, now().isoformat())[:24],
        lake=where,
        subject=subject,
        asked=asked,
        reason=reason,
        requested_by=requested_by,
        begun_at=now(),
    )
    refresh(made)
    sessions = recorded(made)
    if set(sessions) - set(made.episode_ids):
        made.episode_ids = sorted({*made.episode_ids, *sessions})
        refresh(made)
    if earlier is None and not any(made.rows.values()) and not sessions:
        before = erased_among(where, asked)
        of = f"of subject {subject!r}" if subject is not None else f"of {', '.join(asked)}"
        raise NothingToErase(f"there is nothing {of}" + ("; it was erased before" if before else ""))
    return made


def refresh(made: Plan) -> None:
    """Look again what the newest versions hold: adds to the plan, and counts the rows that would go and those that went."""
    with connect(made.lake) as lake:
        lake.register("asked", _column("episode_id", made.asked + made.episode_ids))
        of_subject = (
            "select episode_id, session_id, problem_id, problem_kind from bronze.episodes where subject = $subject"
            " or episode_id in (select episode_id from asked)"
        )
        episodes = lake.execute(of_subject, {"subject": made.subject}).fetchall()
        refused = lake.execute(
            """
            select episode_id
            from bronze.quarantine
            where episode_id in (select episode_id from asked)
                or (table_name = 'episodes' and (payload ->> '$.subject') = $subject)
            """,
            {"subject": made.subject},
        ).fetchall()
        ids = {*made.asked, *made.episode_ids, *(e[0] for e in episodes), *(q[0] for q in refused if q[0])}
        made.episode_ids = sorted(ids)
        made.sessions = sorted({*made.sessions, *((str(e[1]), str(e[0])) for e in episodes)})
        lake.register("going", _column("episode_id", made.episode_ids))
        if made.subject is not None:
            made.problem_ids = sorted({*made.problem_ids, *_problems(lake)})
        made.trees = sorted({*made.trees, *_trees(lake)})
        made.training_sets = sorted({*made.training_sets, *_training_sets(lake)})
        lake.register("trained", _column("training_set_id", made.training_sets))
        made.tainted = sorted({*made.tainted, *_tainted(lake)})
        now_there = _rows(lake, made.problem_ids)
    for table, number in made.rows.items():  # what was there at the last look and is not now is gone
        made.removed[table] = made.removed.get(table, 0) + max(0, number - now_there.get(table, 0))
    made.rows = now_there


def _problems(lake: Connection) -> list[str]:
    """Problems of outside applications that nobody but these episodes was about."""
    rows = lake.execute(
        """
        select problem_id
        from bronze.episodes
        where problem_kind = 'external'
        group by problem_id
        having bool_and(episode_id in (select episode_id from going))
        """
    ).fetchall()
    return [problem_id for (problem_id,) in rows]


def _trees(lake: Connection) -> list[str]:
    rows = lake.execute(
        """
        select tree
        from bronze.actions
        where tree is not null
        group by tree
        having bool_and(episode_id in (select episode_id from going))
        """
    ).fetchall()
    return [tree for (tree,) in rows]


def _training_sets(lake: Connection) -> list[str]:
    rows = lake.execute(
        "select distinct training_set_id from bronze.training_rows where episode_id in (select episode_id from going)"
    ).fetchall()
    return [name for (name,) in rows]


def _tainted(lake: Connection) -> list[str]:
    """Model versions that were trained on these sets, and those that such a version went into."""
    rows = lake.execute(
        """
        with recursive edges as materialized (
            from descent_edges
        ),

        tainted as (
            select name, version
            from bronze.model_versions
            semi join trained using (training_set_id)

            union

            select edges.name, edges.version
            from tainted
            inner join edges on tainted.name = edges.from_name and tainted.version = edges.from_version
        )

        select name || '@' || version
        from tainted
        order by all
        """
    ).fetchall()
    return [name for (name,) in rows]


def _rows(lake: Connection, problem_ids: list[str]) -> dict[str, int]:
    lake.register("belonging", _column("problem_id", problem_ids))
    counted = [
        f"select '{table}' as name, count(*) as n from bronze.{table} semi join going using (episode_id)"  # noqa: S608
        for table in BY_EPISODE
    ]
    counted.append("select 'problems', count(*) from bronze.problems semi join belonging using (problem_id)")
    return {name: number for name, number in lake.execute(" union all ".join(counted)).fetchall() if number}


def _column(name: str, values: Sequence[str]) -> pa.Table:
    return pa.table({name: pa.array(sorted(set(values)), pa.string())})
