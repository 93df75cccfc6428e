"""The only writer of the lake.

`append` adds rows, at most once per transaction id. `land` adds episodes that ended, at most once per episode id, ever:
children first and `episodes` last, so that a process killed in between leaves rows that no view shows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError

from lakehouse import store
from lakehouse.erased import erased_among
from lakehouse.invariants import InvalidRecord, check, refuse
from lakehouse.records import Action, Call, Episode, Evidence, Problem, Record, now
from lakehouse.schema import TABLES

T = TypeVar("T")

_ATTEMPT = ["episode_id", "attempt_id"]
_CHILDREN = {
    "calls": "started_at",
    "actions": "started_at",
    "evidence": "created_at",
}  # and the column files are pruned by
_LANDING = "land"  # the application id of every landing commit: two of them from one snapshot conflict
_RETRIES = 20
_PARQUET = WriterProperties(compression="ZSTD")


@dataclass(frozen=True)
class Appended:
    """`version` is the table's Delta version after the call; `skipped`: this transaction was already there."""

    version: int
    rows: int
    skipped: bool


@dataclass(frozen=True)
class Landed:
    """`episodes` landed now; `skipped` are the ids that had landed before, or were erased since."""

    episodes: int
    skipped: list[str]


@dataclass(frozen=True)
class Compacted:
    """What compaction did to one table."""

    table: str
    files_before: int
    files_after: int
    version: int


def to_arrow(table: str, records: Sequence[Record]) -> pa.Table:
    """Records as Arrow columns. TypeError if one is not of the table's record class."""
    kind = TABLES[table].record
    wrong = next((record for record in records if not isinstance(record, kind)), None)
    if wrong is not None:
        raise TypeError(f"table {table} holds {kind.__name__} records, not {type(wrong).__name__}")
    schema = TABLES[table].arrow
    return pa.table([pa.array([getattr(r, f.name) for r in records], f.type) for f in schema], schema=schema)


class Writer:
    """Writes one lake. Cheap to make; holds nothing open."""

    def __init__(self, lake: str | None = None) -> None:
        self.lake = store.location(lake)

    def append(self, table: str, records: Sequence[Record], *, transaction: str | None = None) -> Appended:
        """Append records. The same transaction id again is a no-op, whoever committed it."""
        return self.append_arrow(table, to_arrow(table, records), transaction=transaction)

    def append_arrow(self, table: str, data: pa.Table, *, transaction: str | None = None) -> Appended:
        """`append` for rows that are already columns of the table's schema."""
        check(table, data)
        with store.exclusive(self.lake, table):

            def commit(delta: DeltaTable) -> Appended:
                if transaction is not None and delta.transaction_version(transaction) is not None:
                    return Appended(delta.version(), 0, skipped=True)
                if data.num_rows or transaction is not None:
                    _write(delta, data, None if transaction is None else Transaction(transaction, 1))
                return Appended(delta.version(), data.num_rows, skipped=False)

            return self._retried(table, commit)

    def append_new(self, table: str, records: Sequence[Record], *, key: str) -> Appended:
        """Append the records whose `key` column is not in the table yet: repeating it adds nothing."""
        data = to_arrow(table, records)
        check(table, data)
        with store.exclusive(self.lake, table):

            def commit(delta: DeltaTable) -> Appended:
                there = store.read(self.lake, delta, [key])[key].combine_chunks()
                fresh = data.filter(pc.invert(pc.is_in(data[key], value_set=there)))
                if fresh.num_rows:
                    _write(delta, fresh, _next_landing(delta))
                return Appended(delta.version(), fresh.num_rows, skipped=fresh.num_rows < data.num_rows)

            return self._retried(table, commit)

    def put_problems(self, problems: Sequence[Problem]) -> Appended:
        """Append the problems that are new or differ from their newest edition in the lake: repeating it adds nothing.

        Editions that were there stay, for the episodes that saw them.
        """
        with store.exclusive(self.lake, "problems"):

            def commit(delta: DeltaTable) -> Appended:
                there = store.read(self.lake, delta, ["problem_id", "edition", "created_at"]).sort_by("created_at")
                newest = dict(zip(there["problem_id"].to_pylist(), there["edition"].to_pylist(), strict=True))
                fresh = [
                    problem.model_copy(update={"edition": problem.content, "created_at": now()})
                    for problem in problems
                    if newest.get(problem.problem_id) != problem.content
                ]
                data = to_arrow("problems", fresh)
                check("problems", data)
                if fresh:
                    _write(delta, data, _next_landing(delta))
                return Appended(delta.version(), len(fresh), skipped=len(fresh) < len(problems))

            return self._retried("problems", commit)

    def land(
        self,
        episodes: Sequence[Episode],
        calls: Sequence[Call],
        actions: Sequence[Action],
        evidence: Sequence[Evidence],
    ) -> Landed:
        """Land ended episodes with their children. Ids that landed before are skipped with all their children.

        InvalidRecord, before anything is written, where a record breaks a rule or a child has no episode in the batch.
        """
        parents = to_arrow("episodes", episodes)
        children = {
            "calls": to_arrow("calls", calls),
            "actions": to_arrow("actions", actions),
            "evidence": to_arrow("evidence", evidence),
        }
        check("episodes", parents)
        for name, data in children.items():
            check(name, data)
            refuse(
                name, data, pc.invert(_is_in(data, parents)), "a child belongs to an episode and attempt of its batch"
            )
        _agree(parents, children["calls"])
        with store.exclusive(self.lake, "episodes"):
            return self._retried("episodes", lambda delta: self._land(delta, parents, children))

    def compact(self) -> list[Compacted]:
        """Rewrite small files into larger ones. Old files stay, so pinned versions can still be read."""
        done = []
        for name in TABLES:
            with store.exclusive(self.lake, name):
                delta = store.opened(self.lake, name)
                if delta is None:
                    continue
                before = len(delta.file_uris())
                delta.optimize.compact(writer_properties=_PARQUET)
                delta.update_incremental()
                done.append(Compacted(name, before, len(delta.file_uris()), delta.version()))
        return done

    def _land(self, delta: DeltaTable, parents: pa.Table, children: dict[str, pa.Table]) -> Landed:
        runs = pc.unique(parents["run_id"]).to_pylist()
        there = store.read(self.lake, delta, ["episode_id"], [("run_id", "in", runs)]) if runs else parents.slice(0, 0)
        erased = pa.array(sorted(erased_among(self.lake, parents["episode_id"].to_pylist())), pa.string())
        landed = pa.chunked_array([*there["episode_id"].chunks, erased], pa.string())
        old = pc.is_in(parents["episode_id"], value_set=landed.combine_chunks())
        fresh = parents.filter(pc.invert(old))
        skipped = parents.filter(old)["episode_id"].to_pylist()
        if not fresh.num_rows:
            return Landed(0, skipped)
        for name, data in children.items():
            self._land_children(name, data.filter(_is_in(data, fresh)))
        _write(delta, fresh, _next_landing(delta))
        return Landed(fresh.num_rows, skipped)

    def _land_children(self, table: str, data: pa.Table) -> None:
        """Append children whose attempt is not there yet: a landing killed half-way may have left them."""
        if not data.num_rows:
            return
        clock = _CHILDREN[table]

        def commit(delta: DeltaTable) -> None:
            since = pc.min(data[clock]).as_py()  # an attempt's own rows are never older than this: prunes old files
            there = store.read(self.lake, delta, _ATTEMPT, [(clock, ">=", since)])
            missing = data.filter(pc.invert(_is_in(data, there)))
            if missing.num_rows:
                _write(delta, missing, _next_landing(delta))

        with store.exclusive(self.lake, table):
            self._retried(table, commit)

    def _retried(self, table: str, commit: Callable[[DeltaTable], T]) -> T:
        """Read the table and commit; where another writer of the same transaction id was first, look again."""
        for _ in range(_RETRIES):
            try:
                return commit(self._table(table))
            except CommitFailedError as error:
                last = error
        raise CommitFailedError(f"table {table}: {_RETRIES} commits in a row met another writer's: {last}")

    def _table(self, table: str) -> DeltaTable:
        spec = TABLES[table]
        found = store.opened(self.lake, table)
        if found is not None:
            _widen(found, spec.arrow)
            return found
        return DeltaTable.create(
            store.uri(self.lake, table),
            spec.arrow,
            mode="ignore",
            partition_by=list(spec.partition_by),
            name=spec.name,
            description=spec.grain,
        )


def _write(delta: DeltaTable, data: pa.Table, transaction: Transaction | None) -> None:
    transactions = None if transaction is None else [transaction]
    write_deltalake(
        delta,
        data,
        mode="append",
        writer_properties=_PARQUET,
        commit_properties=CommitProperties(app_transactions=transactions),
    )


def _widen(delta: DeltaTable, columns: pa.Schema) -> None:
    """Add the columns that a table of an earlier release lacks."""
    there = {field.name for field in delta.schema().fields}
    missing = [column for column in columns if column.name not in there]
    if missing:
        delta.alter.add_columns(Schema.from_arrow(pa.schema(missing)).fields)
        delta.update_incremental()


def _next_landing(delta: DeltaTable) -> Transaction:
    return Transaction(_LANDING, (delta.transaction_version(_LANDING) or 0) + 1)


def _attempts(data: pa.Table) -> pa.Array:
    """(episode, attempt) as one value per row; neither id contains a space."""
    return pc.binary_join_element_wise(data["episode_id"], data["attempt_id"], " ")


def _is_in(data: pa.Table, parents: pa.Table) -> pa.Array:
    return pc.is_in(_attempts(data), value_set=_attempts(parents).combine_chunks())


def _agree(parents: pa.Table, calls: pa.Table) -> None:
    """Counts on an episode are those of its calls: the ledger's independent witness that no call was lost."""
    tokens = calls.select(["episode_id"]).append_column("n", pc.list_value_length(calls["completion_token_ids"]))
    sums = tokens.group_by("episode_id").aggregate([("n", "sum"), ("n", "count")])
    told = parents.select(["episode_id", "n_calls", "n_completion_tokens"]).join(sums, "episode_id")
    for column, counted in (("n_calls", "n_count"), ("n_completion_tokens", "n_sum")):
        wrong = told.filter(pc.not_equal(told[column], pc.fill_null(told[counted], 0)))
        if wrong.num_rows:
            row = wrong.slice(0, 1).to_pylist()[0]
            rule = f"{column} is {row[column]}, its calls in the batch make {row[counted] or 0}"
            raise InvalidRecord("episodes", {"episode_id": row["episode_id"]}, rule)
