"""The journal's tables, their rows, and how an older journal becomes one of today."""

import sqlite3
from dataclasses import dataclass, field

VERSION = 3

TABLES = """
create table if not exists sessions (
  n integer primary key, session_id text unique not null, task_id text not null, mode text not null,
  engine_version text not null, template_digest text not null, limits text not null, started_at text not null,
  state text not null, reason text, masked text, budget_hit text, ended_at text, sealed_at text, pruned_at text,
  shredded_at text, subject text, version integer
);
create index if not exists sessions_sealed on sessions (sealed_at) where pruned_at is null;
create table if not exists keys (
  n integer primary key, digest text not null, session_id text not null, scopes text not null,
  created_at text not null, expires_at text, revoked_at text
);
create index if not exists keys_digest on keys (digest);
create index if not exists keys_session on keys (session_id);
create table if not exists calls (
  session_id text not null, call_index integer not null, call_id text unique not null, intent blob not null,
  primary key (session_id, call_index)
);
create table if not exists answers (call_id text primary key, answer blob not null);
create table if not exists rewards (
  n integer primary key, session_id text not null, scope text not null, call_id text, reward real not null,
  labeller text not null, reason text not null, given_at text not null
);
create index if not exists rewards_session on rewards (session_id);
"""

FROM_0 = """
alter table sessions rename to sessions_0;
alter table rewards rename to rewards_0;
alter table calls rename to calls_0;
drop index if exists sessions_model_key;
drop index if exists sessions_reward_key;
"""

INTO_1 = """
insert into sessions (n, session_id, task_id, mode, engine_version, template_digest, limits, started_at, state, reason,
                      masked, ended_at)
  select n, session_id, task_id, mode, engine_version, template_digest, '{}', started_at, state, reason, masked, ended_at
  from sessions_0;
insert into keys (digest, session_id, scopes, created_at)
  select model_key, session_id, 'model', started_at from sessions_0
  union all select reward_key, session_id, 'reward', started_at from sessions_0;
insert into rewards (n, session_id, scope, call_id, reward, labeller, reason, given_at)
  select n, session_id, 'call', call_id, reward, '', '', given_at from rewards_0;
insert into calls (session_id, call_index, call_id, intent) select session_id, call_index, call_id, intent from calls_0;
insert into answers select call_id, answer from calls_0 where answer is not null;
drop table sessions_0;
drop table rewards_0;
drop table calls_0;
"""

FROM_2 = "alter table sessions add column version integer;"
FROM_1 = "alter table sessions add column shredded_at text; alter table sessions add column subject text;" + FROM_2


@dataclass(frozen=True, kw_only=True)
class SessionRow:
    """A session as the journal knows it. Times are ISO 8601."""

    n: int
    session_id: str
    task_id: str
    mode: str
    engine_version: str
    template_digest: str
    limits: str = "{}"  # JSON
    subject: str | None = None  # whose data it holds, as the application names them
    version: int | None = None  # of the weights that may answer it; None: of any
    started_at: str
    state: str = "open"
    reason: str | None = None
    masked: str | None = None
    budget_hit: str | None = None  # the first budget that refused a call
    ended_at: str | None = None
    sealed_at: str | None = None
    pruned_at: str | None = None
    shredded_at: str | None = None  # since then nobody can read its calls


@dataclass(frozen=True, kw_only=True)
class KeyRow:
    """A session's key, as a digest."""

    digest: str = field(repr=False)
    session_id: str
    scopes: str  # "model", "reward" or both with a space between
    created_at: str
    expires_at: str | None = None
    revoked_at: str | None = None


@dataclass(frozen=True, kw_only=True)
class RewardRow:
    """One reward as it was given; of those with one scope and call the newest counts."""

    scope: str  # "call" or "episode"
    call_id: str | None  # None with scope "episode"
    reward: float
    labeller: str  # who or what judged; empty where not told
    reason: str
    given_at: str


def prepare(db: sqlite3.Connection) -> None:
    """Make the tables, or bring those of an older journal up to date; nothing is lost."""
    db.execute("begin immediate")  # several workers open one journal: the first one does it
    try:
        [version] = db.execute("pragma user_version").fetchone()
        if version > VERSION:
            raise sqlite3.DatabaseError(
                f"the journal was written by a newer Lakeloop (version {version} of its tables)"
            )
        there = db.execute("select 1 from sqlite_master where name = 'sessions'").fetchone()
        older = FROM_0 + TABLES + INTO_1 if there else TABLES
        script = older if version == 0 else TABLES + {1: FROM_1, 2: FROM_2}.get(version, "")
        for statement in script.split(";"):
            db.execute(statement)
        db.execute(f"pragma user_version = {VERSION}")
        db.execute("commit")
    except BaseException:  # an interrupt too: a journal has one version or the next
        db.execute("rollback")
        raise


def insert(db: sqlite3.Connection, table: str, **values: object) -> int:
    """Insert one row; how many were inserted."""
    marks = ", ".join("?" * len(values))
    statement = f"insert into {table} ({', '.join(values)}) values ({marks})"  # noqa: S608 - names are ours
    return db.execute(statement, list(values.values())).rowcount
