"""Which problems a run takes: a seeded, repeatable draw from the lake."""

from collections.abc import Collection, Mapping

from lakehouse.query import connect
from lakehouse.records import Problem, Split


class NotEnoughProblems(LookupError):
    """The lake holds fewer problems that fit than were asked for."""


# What a run may draw of a set: `$name` is a kind, or a kind and the next part of the problem ids, "search/debian".
_DRAWABLE = """
    from problems
    where kind = split_part($name, '/', 1)
        and (kind = $name or starts_with(problem_id, $name || '/'))
        and split = $split
        and oracle_passed
        and null_failed
        and difficulty <= $max_difficulty
        and (
            $split <> 'train'
            or exists (
                from permissions
                where permissions.problem_id = problems.problem_id
                    and permissions.edition is not distinct from problems.edition
                    and list_contains(permissions.allowed_uses, 'training')
                    and coalesce(permissions.consent, 'not_needed') in ('given', 'not_needed')
            )
        )
        and not exists (
            from closed_book
            where closed_book.problem_id = problems.problem_id
                and closed_book.problem_edition is not distinct from problems.edition
                and closed_book.known > 0
        )
        and not list_contains($without, problem_id)
"""


def available(
    lake: str | None, name: str, *, split: Split, max_difficulty: float = 1.0, without: Collection[str] = ()
) -> int:
    """How many problems of a set `choose` can draw."""
    with connect(lake) as connection:
        values = {"name": name, "split": split, "max_difficulty": max_difficulty, "without": sorted(without)}
        counted = connection.execute(f"select count(*) {_DRAWABLE}", values).fetchone()
    return int(counted[0]) if counted else 0


def choose(
    lake: str | None,
    counts: Mapping[str, int],
    *,
    split: Split,
    seed: int = 0,
    max_difficulty: float = 1.0,
    without: Collection[str] = (),
) -> list[Problem]:
    """`counts[name]` problems of each kind or set, drawn by seed from those that passed both gates.

    The same seed over the same problems gives the same draw; another seed mostly gives others. For the train split only
    problems that may be trained on count (see the view `permissions`), and in neither split those that a model answered
    without tools, or those of the ids `without`.
    NotEnoughProblems names the set and how many there are.
    """
    chosen: list[Problem] = []
    with connect(lake) as connection:
        for name, count in counts.items():
            if count < 0:
                raise NotEnoughProblems(f"{count} {name} problems were asked for: ask for 0 or more")
            rows = connection.execute(
                f"select * {_DRAWABLE} order by md5(problem_id || ':' || $seed)",
                {
                    "name": name,
                    "split": split,
                    "max_difficulty": max_difficulty,
                    "seed": seed,
                    "without": sorted(without),
                },
            ).pl()
            if rows.height < count:
                raise NotEnoughProblems(
                    f"{count} {name} problems of split {split!r} with difficulty <= {max_difficulty} were asked for and "
                    f"{rows.height} are in the lake: ask for fewer, raise max_difficulty, or run "
                    "`lakeloop problems load`"
                )
            chosen += [Problem(**row) for row in rows.head(count).to_dicts()]
    return chosen


def named(lake: str | None, problem_ids: Collection[str]) -> dict[str, Problem]:
    """The newest edition of each of these problems that is there, by id."""
    with connect(lake) as connection:
        rows = connection.execute("from problems where list_contains($1, problem_id)", [list(problem_ids)]).pl()
    return {row["problem_id"]: Problem(**row) for row in rows.to_dicts()}
