"""The tables, each once: grain, key, partitions, and what each column may hold. Masking and expiry derive from this.

Columns and their types come from the record classes, so a table cannot drift from what the parts exchange. A column that
is added to a class must be optional: it is NULL in rows from before, and the next write adds it to a table that lacks it.
Lists hold one value per token and are stored in 32 bits: enough for any vocabulary, weight version or float32 log-prob.
"""

import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Literal, Union, get_args, get_origin

import pyarrow as pa

from lakehouse import records

SCHEMA_VERSION = (
    4  # raised with every column; a table says which one wrote it, so that an older release does not write to it
)


@dataclass(frozen=True)
class Column:
    """What governance needs to know of a column. `retention_days` None: kept as long as the table."""

    sensitivity: Literal["plain", "pseudonym", "person", "content"]
    retention_days: int | None


PLAIN = Column("plain", None)  # counts, times, names of our own parts
PSEUDONYM = Column("pseudonym", None)  # links rows of one episode or problem; says nothing by itself
CONTENT = Column("content", 365)  # what a model or a tool wrote in an episode, as text or as token ids
PERSON = Column("person", None)  # names somebody: a subject, a reviewer, whoever acted
LASTING = Column("content", None)  # content that other things rest on: problems, and what a model was trained on


@dataclass(frozen=True)
class Table:
    """One Delta table."""

    name: str
    record: type[records.Record]
    grain: str
    key: tuple[str, ...]
    partition_by: tuple[str, ...] = ()
    columns: Mapping[str, Column] = field(default_factory=dict)  # what is not PLAIN
    asked_by: tuple[str, ...] = ()  # columns besides key and times whose least and greatest values files are chosen by
    partitioned_before: tuple[str, ...] = ()  # by an earlier release: such a table stays as it is

    @property
    def cluster_by(self) -> tuple[str, ...]:
        """The order of rows within a file: those of one episode lie together."""
        return self.key if not self.partition_by and self.key[0] == "episode_id" else ()

    @cached_property
    def arrow(self) -> pa.Schema:
        """Columns in the order of the record class."""
        return pa.schema([_arrow_field(name, f.annotation) for name, f in self.record.model_fields.items()])

    def column(self, name: str) -> Column:
        """Sensitivity and retention of one column. KeyError if the table has no such column."""
        if name not in self.record.model_fields:
            raise KeyError(f"table {self.name} has no column {name!r}")
        return self.columns.get(name, PLAIN)


def _each(column: Column, *names: str) -> dict[str, Column]:
    return dict.fromkeys(names, column)


_EPISODE = _each(PSEUDONYM, "episode_id", "problem_id", "group_id")
_ATTEMPT = _each(PSEUDONYM, "episode_id", "attempt_id")

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        Table(
            "problems",
            records.Problem,
            "one row per problem and edition; the newest row holds",
            ("problem_id", "edition"),
            ("kind",),
            _each(PSEUDONYM, "problem_id", "edition") | _each(LASTING, "title", "prompt", "spec"),
        ),
        Table(
            "dispatches",
            records.Dispatch,
            "one row per episode that shall run",
            ("episode_id",),
            (),
            _EPISODE,
            asked_by=("run_id",),
            partitioned_before=("run_id",),
        ),
        Table(
            "episodes",
            records.Episode,
            "one row per episode that ended",
            ("episode_id",),
            (),
            _EPISODE
            | _each(PSEUDONYM, "attempt_id", "session_id", "problem_edition")
            | _each(PERSON, "subject")
            | _each(CONTENT, "error"),
            asked_by=("run_id",),
            partitioned_before=("run_id",),
        ),
        Table(
            "calls",
            records.Call,
            "one row per model call",
            ("episode_id", "attempt_id", "call_index"),
            (),
            _ATTEMPT
            | _each(PSEUDONYM, "call_id", "session_id", "parent_call_id", "continues_call_id")
            | _each(
                CONTENT, "prompt_token_ids", "completion_token_ids", "request_messages", "response_message", "tools"
            ),
        ),
        Table(
            "actions",
            records.Action,
            "one row per tool call",
            ("episode_id", "attempt_id", "action_index"),
            (),
            _ATTEMPT | _each(PSEUDONYM, "call_id", "tree") | _each(CONTENT, "arguments", "observation"),
        ),
        Table(
            "evidence",
            records.Evidence,
            "one row per measured fact and producer",
            ("episode_id", "attempt_id", "name", "producer"),
            (),
            _ATTEMPT | _each(CONTENT, "value"),
        ),
        Table(
            "rewards",
            records.Reward,
            "one row per judgement; the newest of an episode and rubric version holds",
            ("episode_id", "rubric", "rubric_version", "labelled_at"),
            ("rubric",),
            _each(PSEUDONYM, "episode_id"),
        ),
        Table("training_sets", records.TrainingSet, "one row per pinned selection", ("training_set_id",)),
        Table(
            "training_rows",
            records.TrainingRow,
            "one row per leaf of a call tree",
            ("training_set_id", "row_index"),
            ("training_set_id",),
            _each(PSEUDONYM, "episode_id", "group_id") | _each(LASTING, "input_ids"),
        ),
        Table("model_versions", records.ModelVersion, "one row per registered version", ("name", "version")),
        Table("deployments", records.Deployment, "one row per change of what is served", ("deployment_id",)),
        Table(
            "gates",
            records.GateDecision,
            "one row per decision about promoting a version",
            ("gate_id",),
            (),
            _each(PERSON, "decided_by"),
        ),
        Table(
            "sources",
            records.Source,
            "one row per declaration; the newest of a source holds",
            ("source", "declared_at"),
            (),
            _each(PERSON, "declared_by"),
        ),
        Table(
            "quarantine",
            records.Quarantined,
            "one row per row that was refused at the door",
            ("quarantine_id",),
            (),
            _each(PSEUDONYM, "quarantine_id", "episode_id", "attempt_id", "row_key", "payload_digest")
            | _each(CONTENT, "payload"),
        ),
        Table(
            "redactions",
            records.Redaction,
            "one row per place and detector of something replaced before it was written",
            ("episode_id", "attempt_id", "place", "detector"),
            (),
            _ATTEMPT,
        ),
        Table(
            "call_rewards",
            records.CallReward,
            "one row per judgement of a call; the newest of a call and rubric version holds",
            ("episode_id", "call_id", "rubric", "rubric_version", "labelled_at"),
            ("rubric",),
            _each(PSEUDONYM, "episode_id", "call_id") | _each(CONTENT, "reason"),
        ),
        Table(
            "reviews",
            records.Review,
            "one row per verdict of a person; the newest of an episode and reviewer holds",
            ("review_id",),
            (),
            _each(PSEUDONYM, "review_id", "episode_id") | _each(PERSON, "reviewer") | _each(CONTENT, "comment"),
        ),
        Table(
            "erasures",
            records.Erasure,
            "one row per step of an erasure, with its proof; the newest of an erasure holds",
            ("erasure_id", "erased_at"),
            (),
            _each(PSEUDONYM, "erasure_id", "subject", "episode_ids") | _each(PERSON, "requested_by"),
        ),
        Table(
            "audit",
            records.AuditEntry,
            "one row per act on the lake",
            ("entry_id",),
            (),
            _each(PERSON, "actor") | _each(PSEUDONYM, "object", "detail"),  # a review's object is an episode's id
        ),
    )
}


_SCALARS: dict[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    datetime: pa.timestamp("us", "UTC"),
}
_ITEMS: dict[Any, pa.DataType] = {str: pa.string(), int: pa.int32(), float: pa.float32()}


def _arrow_field(name: str, annotation: Any) -> pa.Field:
    """A record field as an Arrow field; `X | None` becomes nullable."""
    nullable = False
    if get_origin(annotation) in (Union, types.UnionType):
        (annotation,) = (arg for arg in get_args(annotation) if arg is not type(None))
        nullable = True
    if get_origin(annotation) is list:
        (item,) = get_args(annotation)
        return pa.field(name, pa.list_(_ITEMS[item]), nullable=nullable)
    if get_origin(annotation) is Literal or (isinstance(annotation, type) and issubclass(annotation, str)):
        annotation = str
    return pa.field(name, _SCALARS[annotation], nullable=nullable)


_DUCKDB = {
    pa.string(): "VARCHAR",
    pa.int64(): "BIGINT",
    pa.int32(): "INTEGER",
    pa.float64(): "DOUBLE",
    pa.float32(): "FLOAT",
    pa.bool_(): "BOOLEAN",
    pa.timestamp("us", "UTC"): "TIMESTAMP WITH TIME ZONE",
}


def duckdb_type(arrow: pa.DataType) -> str:
    """The DuckDB type that `delta_scan` gives for a column of this Arrow type."""
    if pa.types.is_list(arrow):
        return f"{_DUCKDB[arrow.value_type]}[]"
    return _DUCKDB[arrow]
