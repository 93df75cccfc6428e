"""Erasure in the lake: rows, old files, log and audit; then the scan that proves it, and the signed row that says so.

The order makes every crash harmless. The plan is a file before anything goes; the tombstones are in `erasures` before any
row goes, so that nothing lands again behind our back; the row that ends it is written when the scan has found nothing. What
is not the lake's (journal, runs, work trees, servers) is removed between by `tasks.erase`.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from lakehouse import store
from lakehouse.erased import tombstone
from lakehouse.governance import audit, scan
from lakehouse.governance.deltalog import merged
from lakehouse.governance.plan import Plan, folder, refresh
from lakehouse.governance.probes import Probes, choose
from lakehouse.governance.purge import Rule, purge
from lakehouse.governance.scan import Scanned, Search
from lakehouse.home import home
from lakehouse.keys import keyed
from lakehouse.query import connect
from lakehouse.records import Erasure, dumps, now
from lakehouse.write import Writer


class LeftOver(RuntimeError):
    """The scan found what should be gone. Nothing is signed; repeating the erasure goes on."""


class Tainted(RuntimeError):
    """A model version was trained on what has been erased."""


def begin(plan: Plan) -> None:
    """Choose what will be looked for, remember the plan, and write the tombstones. Call it again to go on after a crash."""
    refresh(plan)
    if plan.probes is None or plan.rows:  # the first time, or something of the subject landed since
        fresh = choose(plan.lake, plan.rules(), plan.names)
        known = plan.probes or fresh
        plan.probes = fresh.model_copy(
            update={
                "names": sorted({*known.names, *fresh.names}),
                "texts": sorted({*known.texts, *fresh.texts}),
                "tokens": [list(ids) for ids in sorted({*map(tuple, known.tokens), *map(tuple, fresh.tokens)})],
            }
        )
    plan.save()
    Writer(plan.lake).append("erasures", [_signed(plan, scanned=None)])


def remove(plan: Plan, told: Callable[[str, int], None] = lambda _table, _rows: None) -> None:
    """Remove the rows from every table with every old file that holds them. `told` hears of each table."""
    for table, rule in plan.rules().items():

        def losing(spans: list[tuple[int, int]], table: str = table) -> None:
            plan.lost[table] = merged([*map(_span, plan.lost.get(table, [])), *spans])
            plan.save()

        done = purge(plan.lake, table, rule, losing=losing)
        plan.files += done.files
        plan.save()
        told(table, done.rows)
    refresh(plan)  # counts what went, before anything else of the subject lands
    plan.save()
    _forget_in_audit(plan)


def look(plan: Plan) -> Scanned:
    """Scan the home folder, and the lake where it lies elsewhere, for everything that must be gone."""
    assert plan.probes is not None
    search, scanned = Search(plan.probes), Scanned()
    root = home().root

    def own(path: Path) -> bool:
        return path.parent == folder()  # the plan itself, which goes when all else has gone

    scan.folder(root, search, scanned, skip=own)
    if not store.is_folder(plan.lake):
        scan.bucket(plan.lake, search, scanned)
    elif not Path(plan.lake).resolve().is_relative_to(root):
        scan.folder(Path(plan.lake), search, scanned)
    return scanned


def finish(
    plan: Plan, scanned: Scanned, *, actor: str | None = None, notes: Mapping[str, Any] | None = None
) -> Erasure:
    """Sign what was done, write it to `erasures`, to a report as JSON and Markdown, and to the audit; forget the plan.

    LeftOver where the scan found something, could not read a file that may hold something, or rows landed while it looked.
    """
    if scanned.found or scanned.unread:
        places = [f"{place}: {', '.join(what)}" for place, what in scanned.found.items()]
        places += [f"{told} (could not be searched)" for told in scanned.unread]
        raise LeftOver(
            f"erasure {plan.erasure_id} is not done. Its rows are gone from the lake, and still found in "
            + f"{len(places)} places:\n  "
            + "\n  ".join(places[:20])
            + f"\nRemove these files, or end what writes them, then repeat: lakeloop erase --resume {plan.erasure_id}"
        )
    refresh(plan)
    if plan.rows:  # no tombstone was there for them, and the scan did not know their words
        plan.save()
        told = ", ".join(f"{table}: {rows}" for table, rows in plan.rows.items())
        raise LeftOver(
            f"erasure {plan.erasure_id} is not done: while the scan looked, rows of it landed ({told}). End what lands them, then "
            f"repeat: lakeloop erase --resume {plan.erasure_id}"
        )
    row = _signed(plan, scanned=_told(plan, scanned))
    Writer(plan.lake).append("erasures", [row])
    _write_report(row, notes or {})
    audit.note(plan.lake, "erase", plan.erasure_id, {"rows": plan.removed, "tainted": plan.tainted}, actor)
    plan.path.unlink(missing_ok=True)
    return row


def erasures(lake: str | None = None) -> list[Erasure]:
    """The newest row of every erasure, the newest first."""
    with connect(lake) as connection:
        rows = connection.execute(
            """
            from bronze.erasures
            qualify row_number() over (partition by erasure_id order by erased_at desc) = 1
            order by erased_at desc
            """
        ).pl()
    return [Erasure(**row) for row in rows.to_dicts()]


def verify(row: Erasure) -> bool:
    """Whether the row is as it was signed with this home folder's key."""
    return row.signature == signature(row)


def refuse_tainted(lake: str | None, name: str, version: int) -> None:
    """Tainted where this version of a model, or one it comes from, was trained on what has been erased."""
    with connect(lake) as connection:
        found = connection.execute(
            "select because_of, erasure_id from tainted_versions where name = $1 and version = $2", [name, version]
        ).fetchone()
    if found is not None:
        raise Tainted(
            f"{name} version {version} is tainted: {found[0]} holds rows that erasure {found[1]} removed. It is not served "
            "or promoted again; train a version from one that is not: `lakeloop query 'from tainted_versions'` lists them"
        )


def _forget_in_audit(plan: Plan) -> None:
    """Where the audit names what is erased a digest stands instead: what was done stays written, to whom it was done goes."""
    search = Search(Probes(names=plan.names))

    def held(data: pa.Table) -> pa.Array:
        both = zip(data["object"].to_pylist(), data["detail"].to_pylist(), strict=True)
        return pa.array([bool(search(f"{object}\n{detail}".encode())) for object, detail in both], pa.bool_())

    def change(delta: DeltaTable) -> int:
        rows = store.read(plan.lake, delta, ["entry_id", "object", "detail"])
        rows = rows.filter(held(rows))
        told = {
            name: [_forgotten(text, plan.names) for text in rows[name].to_pylist()] for name in ("object", "detail")
        }
        source = pa.table({"entry_id": rows["entry_id"], **told})
        merge = delta.merge(source, "target.entry_id = source.entry_id", source_alias="source", target_alias="target")
        done = merge.when_matched_update({name: f"source.{name}" for name in told}).execute()
        return int(done["num_target_rows_updated"])

    plan.files += purge(plan.lake, "audit", Rule(["object", "detail"], change, held)).files


def _forgotten(text: str, names: list[str]) -> str:
    for name in names:
        text = scan.replaced(text, name, _stand_in(name))
    return text


def _stand_in(name: str) -> str:
    """An id's tombstone; of a name that could be guessed, a digest that only the holder of the key can make."""
    return tombstone(name) if name.startswith("ep-") else "su-" + keyed("name", name)[:24]


def _signed(plan: Plan, *, scanned: str | None) -> Erasure:
    row = Erasure(
        erasure_id=plan.erasure_id,
        subject=None if plan.subject is None else _stand_in(plan.subject),
        episode_ids=sorted(map(tombstone, plan.episode_ids)),
        reason=plan.reason,
        requested_by=plan.requested_by,
        rows=dumps(plan.removed),
        files=plan.files,
        scanned=scanned,
        tainted=plan.tainted,
        signature="",
        erased_at=now(),
        training_sets=plan.training_sets,
        lost_versions=dumps(plan.lost),
    )
    return row.model_copy(update={"signature": signature(row)})


def signature(row: Erasure) -> str:
    """HMAC-SHA-256 over all other columns."""
    return keyed("erasure", dumps(row.model_dump(mode="json", exclude={"signature"})))


def _told(plan: Plan, scanned: Scanned) -> str:
    assert plan.probes is not None
    looked_for = {
        "names": len(plan.probes.names),
        "texts": len(plan.probes.texts),
        "token_runs": len(plan.probes.tokens),
        "left_out_as_shared": plan.probes.common,
    }
    return dumps({"files": scanned.files, "bytes": scanned.bytes, "looked_for": looked_for, "found": 0})


def report(row: Erasure, notes: Mapping[str, Any]) -> str:
    """The row for people, as Markdown; it holds no id and no name."""
    lines = [
        f"# Erasure {row.erasure_id}\n",
        f"{row.erased_at:%Y-%m-%d %H:%M} UTC, requested by {row.requested_by}: {row.reason}\n",
        "| table | rows removed |\n|---|---|",
        *(f"| `{table}` | {number} |" for table, number in json.loads(row.rows).items()),
        f"\n* Files of older versions removed: {row.files}",
        f"* Scan at the end: `{row.scanned}`",
        f"* Training sets that lost rows: {', '.join(row.training_sets or []) or 'none'}",
        f"* Tainted model versions: {', '.join(row.tainted) or 'none'}",
        *(f"* {name[:1].upper()}{name[1:]}: {value}" for name, value in notes.items() if value),
        f"* Signature (HMAC-SHA-256, key `governance` of this home folder): `{row.signature}`",
    ]
    return "\n".join(lines) + "\n"


def _write_report(row: Erasure, notes: Mapping[str, Any]) -> None:
    told = row.model_dump(mode="json") | {"notes": dict(notes)}
    folder().mkdir(parents=True, exist_ok=True, mode=0o700)
    (folder() / f"{row.erasure_id}.json").write_text(json.dumps(told, indent=2) + "\n")
    (folder() / f"{row.erasure_id}.md").write_text(report(row, notes))


def _span(pair: Any) -> tuple[int, int]:
    return int(pair[0]), int(pair[1])
