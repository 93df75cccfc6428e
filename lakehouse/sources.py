"""Sources: what may be done with the data of each, and who said so."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

from lakehouse.governance.audit import note, user
from lakehouse.privacy.policies import EVERY, OUTSIDE, Policy, undeclared
from lakehouse.query import connect
from lakehouse.records import Source, now
from lakehouse.write import Writer

Consent = Literal["given", "withheld", "not_needed", "unknown"]
USES = ("training", "evaluation", "export")


class SourceError(ValueError):
    """A declaration that leaves something open or says what cannot be."""


def declare(
    lake: str | None,
    source: str,
    *,
    licence: str | None = None,
    allowed_uses: Sequence[str] | None = None,
    consent: str | None = None,
    privacy: str | None = None,
    retention_days: int | None = None,
    actor: str | None = None,
) -> Source:
    """Append a declaration. What is not given is as in the newest one of this source; SourceError where there is none.

    `retention_days` 0: for as long as the table's own rule. It holds for episodes from now on; what landed stays as it is.
    """
    _check(source, allowed_uses, consent, privacy, retention_days)
    before = newest(lake).get(source)
    given = {"licence": licence, "allowed_uses": allowed_uses, "consent": consent, "privacy": privacy}
    values: dict[str, Any] = {
        name: value if value is not None else before and getattr(before, name) for name, value in given.items()
    }
    missing = [f"--{name.replace('_', '-')}" for name, value in values.items() if value is None]
    if missing:
        raise SourceError(f"source {source!r} was not declared before: give {', '.join(missing)} too")
    kept = before.retention_days if before and retention_days is None else retention_days
    declared = Source(
        source=source, **values, retention_days=kept or None, declared_by=actor or user(), declared_at=now()
    )
    Writer(lake).append("sources", [declared])
    told = declared.model_dump(exclude={"source", "declared_by", "declared_at"})
    note(lake, "declare source", source, told, actor)
    return declared


def newest(lake: str | None) -> dict[str, Source]:
    """The declaration that holds, by source."""
    with connect(lake) as connection:
        rows = connection.execute(
            """
            select *
            from sources
            qualify row_number() over (partition by source order by declared_at desc) = 1
            order by source
            """
        ).pl()
    return {row["source"]: Source(**row) for row in rows.to_dicts()}


def listed(lake: str | None) -> list[dict[str, Any]]:
    """Every source that has problems or a declaration: what holds for it, and by which source's declaration.

    `declared` is the source itself, "*", or None where nobody has declared anything.
    """
    with connect(lake) as connection:
        counted = connection.execute(
            "select source, any_value(kind), count(*) from problems group by source order by source"
        ).fetchall()
    known = newest(lake)
    problems = {source: (kind, count) for source, kind, count in counted}
    rows = []
    for source in sorted({*known, *problems, OUTSIDE}):
        kind, count = problems.get(source, (source, 0))
        by = source if source in known else EVERY if EVERY in known else None
        holds = known[by] if by else None
        rows.append(
            {
                "source": source,
                "problems": count,
                "declared": by,
                "licence": holds.licence if holds else None,
                "allowed_uses": holds.allowed_uses if holds else None,
                "consent": holds.consent if holds else None,
                "privacy": holds.privacy if holds else undeclared(kind),
                "retention_days": holds.retention_days if holds else None,
                "declared_by": holds.declared_by if holds else None,
                "declared_at": holds.declared_at.isoformat() if holds else None,
            }
        )
    return rows


def _check(
    source: str, uses: Sequence[str] | None, consent: str | None, privacy: str | None, retention_days: int | None
) -> None:
    if not source.strip():
        raise SourceError('a source has a name; "*" is the default for all without a declaration of their own')
    wrong = sorted(set(uses or ()) - set(USES))
    if wrong:
        raise SourceError(f"no use {', '.join(map(repr, wrong))}: there are {', '.join(USES)}")
    for name, value, known in (("consent", consent, get_args(Consent)), ("privacy", privacy, get_args(Policy))):
        if value is not None and value not in known:
            raise SourceError(f"no {name} {value!r}: there are {', '.join(known)}")
    if retention_days is not None and retention_days < 0:
        raise SourceError("retention is a number of days, 0 for as long as the table's own rule")
