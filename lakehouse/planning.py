"""Which problems a run takes: a seeded, repeatable draw from the lake."""

from collections.abc import Mapping

from lakehouse.query import connect
from lakehouse.records import Problem, Split


class NotEnoughProblems(LookupError):
    """The lake holds fewer problems that fit than were asked for."""


def choose(
    lake: str | None, counts: Mapping[str, int], *, split: Split, seed: int = 0, max_difficulty: float = 1.0
) -> list[Problem]:
    """`counts[kind]` problems of each kind, drawn by seed from those that passed both gates.

    The same seed over the same problems gives the same draw; another seed mostly gives others. For the train split only
    problems whose allowed uses include training count. NotEnoughProblems names the kind and how many there are.
    """
    chosen: list[Problem] = []
    with connect(lake) as connection:
        for kind, count in counts.items():
            if count < 0:
                raise NotEnoughProblems(f"{count} {kind} problems were asked for: ask for 0 or more")
            rows = connection.execute(
                """
                select *
                from problems
                where kind = $kind
                    and split = $split
                    and oracle_passed
                    and null_failed
                    and difficulty <= $max_difficulty
                    and ($split <> 'train' or list_contains(allowed_uses, 'training'))
                order by md5(problem_id || ':' || $seed)
                """,
                {"kind": kind, "split": split, "max_difficulty": max_difficulty, "seed": seed},
            ).pl()
            if rows.height < count:
                raise NotEnoughProblems(
                    f"{count} {kind} problems of split {split!r} with difficulty <= {max_difficulty} were asked for and "
                    f"{rows.height} are in the lake: ask for fewer, raise max_difficulty, or run `lakeloop problems load`"
                )
            chosen += [Problem(**row) for row in rows.head(count).to_dicts()]
    return chosen
