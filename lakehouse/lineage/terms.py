"""What a new version takes over from its data and from the versions that it was trained from and with."""

from collections.abc import Sequence
from dataclasses import dataclass

from lakehouse.query import connect


@dataclass(frozen=True)
class Terms:
    """None where nothing is known: weights from elsewhere, or made by an earlier release."""

    licences: list[str] | None  # of all data, its own and its ancestors'
    allowed_uses: list[str] | None  # what all of it allows


def learnt_from(lake: str | None, digests: Sequence[str]) -> list[str]:
    """The versions, as "tiny@3", whose weights have one of these digests."""
    with connect(lake) as connection:
        rows = connection.execute(
            """
            select distinct name || '@' || version from model_versions
            where list_contains($1::varchar[], weights_digest)
            order by all
            """,
            [list(digests)],
        ).fetchall()
    return [version for (version,) in rows]


def terms(
    lake: str | None, name: str, *, parent: int | None, training_set_id: str | None, others: Sequence[str] = ()
) -> Terms:
    """The union of the licences and the intersection of the uses of a training set, the parent version and others ("tiny@3")."""
    with connect(lake) as connection:
        rows = connection.execute(
            """
            select licences, allowed_uses from training_sets where training_set_id = $1
            union all
            select licences, allowed_uses from model_versions
            where (name = $2 and version = $3) or list_contains($4::varchar[], name || '@' || version)
            """,
            [training_set_id, name, parent, list(others)],
        ).fetchall()
    licences = [set(known) for known, _ in rows if known is not None]
    uses = [set(known) for _, known in rows if known is not None]
    return Terms(
        licences=sorted(set.union(*licences)) if licences else None,
        allowed_uses=sorted(set.intersection(*uses)) if uses else None,
    )
