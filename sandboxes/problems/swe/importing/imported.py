"""Rows of a file, or folders: good ones become problems, bad ones are told by number and reason."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from lakehouse.records import Problem
from sandboxes.backends.base import Backend
from sandboxes.problems.foreign import BadRow, Row, Terms, rows
from sandboxes.problems.swe.importing import folder, formats, images
from sandboxes.problems.swe.importing.admit import admit
from sandboxes.problems.swe.importing.candidate import Candidate
from sandboxes.problems.swe.importing.git import Clones
from sandboxes.problems.swe.validate import Rejected


class Refused(BaseModel):
    """A row, or a folder, that became no problem."""

    line: int  # of a .jsonl file, else the row or folder, from 1
    instance: str | None
    reason: str


@dataclass(frozen=True)
class Order:
    """What to import, and how. `strict`: columns that the form does not know are refused instead of kept."""

    form: str
    path: Path
    terms: Terms
    repos: Path | None = None
    strict: bool = False


def unknown_columns(order: Order) -> Counter[str]:
    """The columns that the form does not know, with the number of rows that have them. Reads the whole file."""
    known = {*formats.FORMATS[order.form].model_fields, *formats.KNOWN}
    return Counter(name for row in rows(order.path) for name in row.value or () if name not in known)


async def imported(order: Order, backend: Backend) -> AsyncIterator[Problem | Refused]:
    """One result per row or folder, in order. BadRow where the path or the folder of clones as a whole cannot be used."""
    seen: set[str] = set()
    for where, instance, read in _folders(order) if order.form == "folder" else _rows(order, backend):
        try:
            candidate, terms = read()
            if candidate.name in seen:
                raise BadRow(f"{candidate.name} was there before")
            seen.add(candidate.name)
            yield await admit(candidate, backend, terms)
        except (BadRow, Rejected) as why:
            yield Refused(line=where, instance=instance, reason=str(why))


Read = Callable[[], tuple[Candidate, Terms]]


def _folders(order: Order) -> Iterator[tuple[int, str, Read]]:
    for number, one in enumerate(folder.folders(order.path), start=1):

        def read(one: Path = one) -> tuple[Candidate, Terms]:
            found = folder.lint(one)
            if found:
                raise BadRow("; ".join(f"{finding.file}: {finding.wrong}" for finding in found))
            terms = folder.terms(one, order.terms)
            return folder.candidate(one, terms), terms

        yield number, one.name, read


def _rows(order: Order, backend: Backend) -> Iterator[tuple[int, str | None, Read]]:
    each = images.of_rows(order.terms.image)
    if order.repos is None and not each:
        raise BadRow(
            "say where the rows' repositories are: --repos names a folder with local clones, or --image one image for "
            "each row, such as 'sweb.eval.x86_64.{instance_id}', with the repository in /testbed"
        )
    if order.repos is not None and not order.repos.is_dir():
        raise BadRow(f"there is no folder {order.repos}: --repos names one with local clones of the rows' repositories")
    clones = None if order.repos is None else Clones(order.repos)
    for row in rows(order.path):

        def read(row: Row = row) -> tuple[Candidate, Terms]:
            if row.value is None:
                raise BadRow(row.wrong)
            parsed = formats.parse(order.form, row.value)
            unknown = sorted({*(parsed.model_extra or {})} - formats.KNOWN)
            if order.strict and unknown:
                raise BadRow(f"columns that {order.form} does not have: {', '.join(unknown)}")
            if not each:
                assert clones is not None
                return parsed.candidate(clones, order.terms), order.terms
            assert order.terms.image is not None
            image = images.image_of(order.terms.image, row.value, backend)
            terms = order.terms.model_copy(update={"image": image})
            with nullcontext(clones) if clones else images.clones_in(image, backend) as where:
                return parsed.candidate(where, terms), terms

        instance = (row.value or {}).get("instance_id") or (row.value or {}).get("commit_hash")
        yield row.number, instance if isinstance(instance, str) else None, read
