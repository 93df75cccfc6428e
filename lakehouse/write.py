"""The only writer of the lake.

`append` adds rows, at most once per transaction id. `land` adds episodes that ended, at most once per episode id, ever.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import pyarrow as pa
from deltalake import DeltaTable, Transaction

from lakehouse import commits, compaction, landing, store
from lakehouse.compaction import Compacted
from lakehouse.erased import erased_among
from lakehouse.invariants import SKEW, ClockSkew, check, check_clock
from lakehouse.landing import DuplicateEpisode, Landed, rows_of
from lakehouse.privacy.door import admit, admit_problems
from lakehouse.quarantine import ATTEMPT, sort_out
from lakehouse.records import Action, Call, Episode, Evidence, Problem, Record, now
from lakehouse.schema import TABLES

__all__ = ["Appended", "Compacted", "DuplicateEpisode", "Landed", "Writer", "to_arrow"]


@dataclass(frozen=True)
class Appended:
    """`version` is the table's Delta version after the call; `skipped`: this transaction was already there."""

    version: int
    rows: int
    skipped: bool


def to_arrow(table: str, records: Sequence[Record]) -> pa.Table:
    """Records as Arrow columns. TypeError if one is not of the table's record class."""
    kind = TABLES[table].record
    wrong = next((record for record in records if not isinstance(record, kind)), None)
    if wrong is not None:
        raise TypeError(f"table {table} holds {kind.__name__} records, not {type(wrong).__name__}")
    return rows_of(table, records)


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

        def commit(delta: DeltaTable) -> Appended:
            if transaction is not None and delta.transaction_version(transaction) is not None:
                return Appended(delta.version(), 0, skipped=True)
            if data.num_rows or transaction is not None:
                commits.write(delta, table, data, None if transaction is None else Transaction(transaction, 1))
            return Appended(delta.version(), data.num_rows, skipped=False)

        with store.exclusive(self.lake, table):
            appended = commits.retried(self.lake, table, commit)
        return self._tended(table, appended)

    def append_new(
        self,
        table: str,
        records: Sequence[Record],
        *,
        key: str | Sequence[str],
        among: Sequence[store.Condition] = (),
    ) -> Appended:
        """Append the records whose `key`, a column or several, is not in the table yet: repeating it adds nothing.

        `among`, of (column, operator, value): which rows can have such a key, so that not all are read.
        """
        data = to_arrow(table, records)
        check(table, data)
        version, written = commits.append_new(self.lake, table, data, key=key, among=among)
        return self._tended(table, Appended(version, written, skipped=written < data.num_rows))

    def put_problems(self, problems: Sequence[Problem]) -> Appended:
        """Append the problems that are new or differ from their newest edition in the lake: repeating it adds nothing.

        Editions that were there stay, for the episodes that saw them. ClockSkew where one of these lies in the future: the
        new edition would not be the newest. What an outside application brings goes through the door first.
        """
        problems, refused = admit_problems(problems, lake=self.lake)
        if refused:
            self.append_new("quarantine", refused, key="quarantine_id")

        def commit(delta: DeltaTable) -> Appended:
            there = store.read(self.lake, delta, ["problem_id", "edition", "created_at"]).sort_by("created_at")
            newest = dict(zip(there["problem_id"].to_pylist(), there["edition"].to_pylist(), strict=True))
            changed = [one for one in problems if newest.get(one.problem_id) != one.content]
            at = now()
            if changed and there.num_rows:
                last = there["created_at"][-1].as_py()
                if last > at + SKEW:
                    raise ClockSkew(
                        f"problems hold a row of {last:%Y-%m-%d %H:%M:%S}, {(last - at).total_seconds():.0f} s ahead of this "
                        "machine's clock: a new edition would not be the newest. Set the clock by NTP; if the row's was wrong, "
                        "wait, or begin another lake"
                    )
                at = max(at, last + timedelta(microseconds=1))
            fresh = [one.model_copy(update={"edition": one.content, "created_at": at}) for one in changed]
            data = to_arrow("problems", fresh)
            check("problems", data)
            if fresh:
                commits.write(delta, "problems", data, commits.next_landing(delta))
            return Appended(delta.version(), len(fresh), skipped=len(fresh) < len(problems))

        with store.exclusive(self.lake, "problems"):
            appended = commits.retried(self.lake, "problems", commit)
        return self._tended("problems", appended)

    def land(
        self,
        episodes: Sequence[Episode],
        calls: Sequence[Call],
        actions: Sequence[Action],
        evidence: Sequence[Evidence],
    ) -> Landed:
        """Land ended episodes with their children. Ids that landed before are skipped with all their children.

        An episode with a row that breaks a rule goes to `quarantine`, as does one that the door refuses; the rest lands.
        DuplicateEpisode, once the rest has landed, where an attempt that landed comes again as another. ClockSkew, and
        whatever the door raises where it cannot look, before anything is written.
        """
        gone = erased_among(self.lake, [one.episode_id for one in episodes])  # not even to quarantine
        if gone:
            parts = (
                [one for one in part if one.episode_id not in gone] for part in (episodes, calls, actions, evidence)
            )
            landed = self.land(*parts)  # type: ignore[arg-type]  # in the order of the parameters
            return replace(landed, skipped=[*landed.skipped, *sorted(gone)])
        batch: dict[str, Sequence[Record]] = {
            "episodes": episodes,
            "calls": calls,
            "actions": actions,
            "evidence": evidence,
        }
        tables = {name: to_arrow(name, records) for name, records in batch.items()}
        for name, data in tables.items():
            check_clock(name, data)
        known = landing.known(self.lake, sorted({one.model_name for one in episodes}))
        sound, refused = sort_out(tables, known)
        kept = set(zip(*(sound["episodes"][name].to_pylist() for name in ATTEMPT), strict=True))
        admitted = admit(
            [one for one in episodes if (one.episode_id, one.attempt_id) in kept],
            [one for one in calls if (one.episode_id, one.attempt_id) in kept],
            [one for one in actions if (one.episode_id, one.attempt_id) in kept],
            [one for one in evidence if (one.episode_id, one.attempt_id) in kept],
            lake=self.lake,
        )
        if admitted.redactions or admitted.refused:
            clean = {name: to_arrow(name, getattr(admitted, name)) for name in batch}
            sound, broken = sort_out(clean, known)
            refused += broken
        if admitted.quarantine:
            self.append_new("quarantine", admitted.quarantine, key="quarantine_id")
        sound["redactions"] = to_arrow("redactions", admitted.redactions)
        out = {one.row["episode_id"] for one in refused} | set(admitted.refused)
        landed = landing.land(self.lake, sound, refused, sorted(out & {one.episode_id for one in episodes}))
        if landed.episodes:
            compaction.tend_landed(self.lake, landed.version)
        return landed

    def compact(self) -> list[Compacted]:
        """Rewrite small files into larger ones. Old files stay, so pinned versions can still be read."""
        done = (compaction.compact(self.lake, name) for name in TABLES)
        return [one for one in done if one is not None]

    def _tended(self, table: str, appended: Appended) -> Appended:
        if appended.rows:
            compaction.tend(self.lake, table, appended.version)
        return appended
