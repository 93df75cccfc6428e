"""A whole file of rows: good ones become problems, bad ones are told by line and reason."""

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from lakehouse.records import Problem
from sandboxes.backends.base import Backend
from sandboxes.problems.swe.importing import formats, rows
from sandboxes.problems.swe.importing.admit import admit
from sandboxes.problems.swe.importing.candidate import Terms, Unusable
from sandboxes.problems.swe.importing.git import Clones
from sandboxes.problems.swe.validate import Rejected


class Refused(BaseModel):
    """A row that became no problem."""

    line: int
    instance: str | None
    reason: str


@dataclass(frozen=True)
class Order:
    """What to import, and how. `strict`: columns that the format does not know are refused instead of kept."""

    format: str
    path: Path
    repos: Path
    terms: Terms
    image: str | None = None
    strict: bool = False
    limit: int | None = None


def columns(order: Order) -> Counter[str]:
    """The columns that the format does not know, with the number of rows that have them. Reads the whole file."""
    found: Counter[str] = Counter()
    for _, row in rows.read(order.path):
        if not isinstance(row, Unusable):
            known = {*formats.FORMATS[order.format].model_fields, *formats.KNOWN}
            found.update(name for name in row if name not in known)
    return found


async def imported(order: Order, backend: Backend) -> AsyncIterator[Problem | Refused]:
    """One result per row, in order. Unusable where the file or the folder of clones as a whole cannot be used."""
    if not order.repos.is_dir():
        raise Unusable(
            f"there is no folder {order.repos}: --repos names one with local clones of the rows' repositories"
        )
    clones = Clones(order.repos)
    seen: set[str] = set()
    for number, (line, row) in enumerate(rows.read(order.path)):
        if number == order.limit:
            return
        name = None if isinstance(row, Unusable) else row.get("instance_id") or row.get("commit_hash")
        try:
            if isinstance(row, Unusable):
                raise row
            parsed = formats.parse(order.format, row)
            candidate = parsed.candidate(clones, order.terms, order.image)
            unknown = sorted({*(parsed.model_extra or {})} - formats.KNOWN)
            if order.strict and unknown:
                raise Unusable(f"columns that {order.format} does not have: {', '.join(unknown)}")
            if candidate.name in seen:
                raise Unusable(f"the instance {candidate.name} was there before")
            seen.add(candidate.name)
            yield await admit(candidate, backend, order.terms)
        except (Unusable, Rejected) as why:
            yield Refused(line=line, instance=name if isinstance(name, str) else None, reason=str(why))
