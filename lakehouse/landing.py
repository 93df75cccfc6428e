"""Landing: ended episodes with their children become rows, each episode at most once, ever.

Children are written first and `episodes` last, so that a process killed in between leaves rows that no view shows. The tables
have been through the door (`lakehouse.privacy.door`): `Writer.land` is the only caller.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from lakehouse import commits, quarantine, store
from lakehouse.erased import erased_among
from lakehouse.invariants import Known
from lakehouse.quarantine import ATTEMPT, DUPLICATE, Refused, Tables, is_in, without
from lakehouse.schema import TABLES

CLOCKS = {  # the column by which files of each child table are pruned
    "calls": "started_at",
    "actions": "started_at",
    "evidence": "created_at",
    "redactions": "created_at",
}
log = logging.getLogger("lakehouse")


@dataclass(frozen=True)
class Landed:
    """`episodes` landed now; `skipped` are the ids that had landed before, or were erased since.

    `quarantined` are the ids that were refused: table `quarantine` says why. `version` is the Delta version of `episodes`.
    """

    episodes: int
    skipped: list[str]
    quarantined: list[str] = field(default_factory=list)
    version: int = 0


class DuplicateEpisode(ValueError):
    """An episode id came with another payload than the one that landed. Both are in quarantine, the rest has landed."""

    def __init__(self, episode_ids: Sequence[str], landed: Landed) -> None:
        self.episode_ids, self.landed = list(episode_ids), landed
        super().__init__(
            f"{len(episode_ids)} episode ids came twice with different payloads, {episode_ids[0]} first: which is true nobody "
            "can tell, so both are in quarantine and neither is trained on; the rest of the batch has landed. Ids are "
            "derived from run, problem and sample: give the other run its own run id"
        )


def known(lake: str, models: Sequence[str]) -> Known:
    """Versions of these models that were released, are parents of such, or were deployed, as one that was registered by hand;
    and the size of their vocabulary where their files are on this machine.
    """
    delta = store.opened(lake, "model_versions")
    if delta is None or not models:
        return Known()
    columns = ["name", "version", "parent_version", "weights_path"]
    rows = store.read(lake, delta, columns, [("name", "in", list(models))]).to_pylist()
    versions: dict[str, set[int]] = {}
    vocabulary: dict[str, int] = {}
    for row in sorted(rows, key=lambda row: int(row["version"]), reverse=True):
        versions.setdefault(row["name"], set()).update({row["version"], row["parent_version"]} - {None})
        if row["name"] not in vocabulary:
            size = _vocabulary(Path(row["weights_path"]) / "config.json")
            if size is not None:
                vocabulary[row["name"]] = size
    deployed = store.opened(lake, "deployments")
    if deployed is not None:
        rows = store.read(lake, deployed, ["name", "version", "accepted"], [("name", "in", list(versions))]).to_pylist()
        for row in rows:
            if row["accepted"]:
                versions[row["name"]].add(row["version"])
    return Known({name: frozenset(found) for name, found in versions.items()}, vocabulary)


def land(lake: str, tables: Tables, refused: Sequence[Refused], quarantined: Sequence[str]) -> Landed:
    """Write tables that keep every rule, and `refused` to quarantine. DuplicateEpisode once all the rest is written.

    `tables` are `episodes` and its children, `redactions` among them. `quarantined`: ids of episodes that were left out.
    """
    put_aside(lake, refused)
    found: list[Refused] = []

    def commit(delta: DeltaTable) -> Landed:
        fresh, skipped, duplicates = _compared(lake, delta, tables)
        found[:] = duplicates
        for name in CLOCKS:
            _land_children(lake, name, fresh[name], since=_since(fresh, name))
        if fresh["episodes"].num_rows:
            commits.write(delta, "episodes", fresh["episodes"], commits.next_landing(delta))
        return Landed(fresh["episodes"].num_rows, skipped, list(quarantined), delta.version())

    with store.exclusive(lake, "episodes"):
        landed = commits.retried(lake, "episodes", commit)
    twice = sorted({one.row["episode_id"] for one in [*found, *refused] if one.rule.startswith(DUPLICATE)})
    put_aside(lake, found)
    if twice:
        raise DuplicateEpisode(twice, landed)
    return landed


def put_aside(lake: str, refused: Sequence[Refused]) -> None:
    """Write refused rows to `quarantine`, each once, and say so."""
    if not refused:
        return
    data = rows_of("quarantine", quarantine.rows(refused))
    commits.append_new(lake, "quarantine", data, key="quarantine_id")
    for rule in dict.fromkeys(one.rule for one in refused):
        those = [one for one in refused if one.rule == rule]
        log.warning(
            "%d rows to quarantine, %s of %s first: %s", len(those), those[0].table, those[0].row["episode_id"], rule
        )


def rows_of(table: str, records: Sequence[Any]) -> pa.Table:
    """Records as Arrow columns of the table's schema."""
    schema = TABLES[table].arrow
    return pa.table([pa.array([getattr(r, f.name) for r in records], f.type) for f in schema], schema=schema)


def _compared(lake: str, delta: DeltaTable, tables: Tables) -> tuple[dict[str, pa.Table], list[str], list[Refused]]:
    """What has not landed yet, the ids that have, and both sides of those that landed with another payload."""
    parents = tables["episodes"]
    runs = pc.unique(parents["run_id"]).to_pylist()
    if not runs:
        return dict(tables), [], []
    ids = parents["episode_id"].to_pylist()
    there = store.read(lake, delta, ATTEMPT, [("run_id", "in", runs), ("episode_id", "in", ids)])
    erased = erased_among(lake, ids)
    landed = set(there["episode_id"].to_pylist()) | erased
    old = pc.is_in(parents["episode_id"], value_set=pa.array(sorted(landed), pa.string()))
    skipped = parents.filter(old)["episode_id"].to_pylist()
    again = parents.filter(is_in(parents, there))  # the very attempt that landed
    return without(tables, skipped), skipped, _duplicates(lake, delta, tables, again) if again.num_rows else []


def _duplicates(lake: str, delta: DeltaTable, tables: Tables, again: pa.Table) -> list[Refused]:
    """Rows of attempts that landed before where the lake's differ. An attempt that comes again is usually the same."""
    ids = again["episode_id"].to_pylist()
    refused = []
    for name in ("episodes", *quarantine.CHILDREN):
        mine = tables[name].filter(is_in(tables[name], again))
        table = delta if name == "episodes" else store.opened(lake, name)
        if table is None or not mine.num_rows:
            continue
        filters: list[store.Condition] = [("episode_id", "in", ids)]
        if name in CLOCKS and name != "evidence":
            filters.append((CLOCKS[name], ">=", pc.min(mine[CLOCKS[name]]).as_py()))
        key = TABLES[name].key
        theirs = {
            tuple(row[k] for k in key): row for row in store.read(lake, table, mine.schema.names, filters).to_pylist()
        }
        for row in mine.to_pylist():
            other = theirs.get(tuple(row[k] for k in key))
            if other is None or quarantine.payload_of(other) != quarantine.payload_of(row):
                refused.append(Refused(name, row, DUPLICATE + "it landed before with another one"))
                if other is not None:
                    refused.append(Refused(name, other, DUPLICATE + "this is the one that landed first"))
    named = {one.row["episode_id"] for one in refused if one.table == "episodes"}
    bad = {one.row["episode_id"] for one in refused} - named
    whole = again.filter(pc.is_in(again["episode_id"], value_set=pa.array(sorted(bad), pa.string())))
    return refused + [
        Refused("episodes", row, DUPLICATE + "its rows differ from those that landed") for row in whole.to_pylist()
    ]


def _land_children(lake: str, table: str, data: pa.Table, *, since: Any) -> None:
    """Append children whose attempt is not there yet: a landing killed half-way may have left them."""
    if not data.num_rows:
        return

    def commit(delta: DeltaTable) -> None:
        ids = pc.unique(data["episode_id"]).to_pylist()
        there = store.read(lake, delta, ATTEMPT, [("episode_id", "in", ids), (CLOCKS[table], ">=", since)])
        missing = data.filter(pc.invert(is_in(data, there))) if there.num_rows else data
        if missing.num_rows:
            commits.write(delta, table, missing, commits.next_landing(delta))

    with store.exclusive(lake, table):
        commits.retried(lake, table, commit)


def _since(tables: Mapping[str, pa.Table], child: str) -> Any:
    """No row of these attempts is older: prunes old files. What is stamped when it lands or is read, not when it happened, is as
    old as the landing that was killed and not as this one."""
    if child in ("redactions", "evidence"):
        return pc.min(tables["episodes"]["started_at"]).as_py()
    return pc.min(tables[child][CLOCKS[child]]).as_py()


def _vocabulary(config: Path) -> int | None:
    try:
        size = json.loads(config.read_text())["vocab_size"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return size if isinstance(size, int) else None
