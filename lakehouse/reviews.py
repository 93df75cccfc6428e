"""Human review: who is to be looked at, a person's verdict, and how far people and rubrics agree.

A verdict outranks every rubric: the view `judgements` has it in place of the rubric's outcome.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import Literal, get_args
from uuid import uuid4

from lakehouse.governance.audit import note, user
from lakehouse.privacy.written import cleaned
from lakehouse.query import QueryError, connect
from lakehouse.records import Record, Review, Status, now
from lakehouse.write import Writer

Rule = Literal["disagreement", "detector", "high_advantage", "random"]
RULES: tuple[Rule, ...] = get_args(Rule)
ASKED = "asked"  # the queue of a verdict that nobody was asked for
SOLVED = 0.5  # from this outcome on two witnesses mean the same


class ReviewError(ValueError):
    """A verdict or a question about verdicts that cannot be; nothing was written."""


class Queued(Record):
    """An episode that waits for a person, with the rule that says so and why."""

    episode_id: str
    queue: str
    priority: float
    why: str
    reviewers: list[str]  # who has given a verdict
    run_id: str
    problem_id: str
    problem_kind: str
    model_name: str
    model_version: int | None


class Agreement(Record):
    """How far two witnesses agree on the episodes that both have judged. `second` is a rubric version or a person."""

    reviewer: str
    second: str
    kind: Literal["rubric", "reviewer"]
    queue: str  # of the reviewer's verdicts; "all"
    n: int
    agreed: int
    agreement: float  # raw
    kappa: float | None  # Cohen's; None where both always said one and the same thing, so that chance explains all
    reviewer_solved: float  # shares of the n episodes
    second_solved: float


def queue(
    lake: str | None, rule: Rule | None = None, *, where: str = "true", reviewer: str | None = None, limit: int = 20
) -> list[Queued]:
    """The next episodes to review, by one rule or by all in turn, each episode once.

    Left out is what `reviewer` has reviewed; where none is named, what anybody has, unless reviewers disagree. `where` is
    SQL over the columns of the view `review_queue`. ReviewError where it is wrong.
    """
    with connect(lake) as connection:
        try:
            rows = connection.execute(
                f"""
                with waiting as (
                    select *
                    from review_queue
                    where if($reviewer is null, len(reviewers) = 0 or open, not list_contains(reviewers, $reviewer))
                        and ($rule is null or queue = $rule)
                        and (
                            {where}
                        )
                ),

                ranked as (
                    select *, row_number() over (partition by queue order by priority desc, episode_id) as place
                    from waiting
                ),

                once as (
                    select *
                    from ranked
                    qualify row_number() over (partition by episode_id order by place, list_position($order, queue)) = 1
                )

                select * exclude (open, place)
                from once
                order by place, list_position($order, queue)
                limit $limit
                """,  # noqa: S608 - SQL by contract, on a connection that only reads
                {"reviewer": reviewer, "rule": rule, "order": list(RULES), "limit": limit},
            ).pl()
        except QueryError as error:
            raise ReviewError(f"{where!r} is not a condition over the columns of `review_queue`: {error}") from error
    return [Queued(**row) for row in rows.to_dicts()]


def review(
    lake: str | None,
    episode_id: str,
    outcome: float | None,
    *,
    reviewer: str | None = None,
    queue: str = ASKED,
    comment: str | None = None,
) -> Review:
    """Write a person's verdict: 1 solved, 0 not, None where it cannot be told or must not be trained on.

    The newest verdict of an episode counts. Secrets and personal data in the comment are replaced. `reviewer` None: the user
    of this process. ReviewError where there is no such episode, or the verdict is none.
    """
    who = (user() if reviewer is None else reviewer).strip()
    if not who:
        raise ReviewError("a verdict needs a reviewer's name")
    if outcome is not None and not 0 <= outcome <= 1:
        raise ReviewError(f"an outcome is between 0 (not solved) and 1 (solved), not {outcome}")
    if queue not in (*RULES, ASKED):
        raise ReviewError(f"no queue {queue!r}; there are {', '.join((*RULES, ASKED))}")
    with connect(lake) as connection:
        row = connection.execute(
            """
            select max(reviewed_at) + interval 1 microsecond, any_value(status)
            from episodes
            left join reviews using (episode_id)
            where episode_id = $1
            group by episode_id
            """,
            [episode_id],
        ).fetchone()
        if row is None:
            raise ReviewError(f"no episode {episode_id!r} has landed; `lakeloop review queue` lists those to look at")
    if outcome is not None and not Status(row[1]).trainable:
        raise ReviewError(
            f"episode {episode_id} ended as {row[1]}, which says nothing about the policy, so that nobody can give it an outcome: "
            "`unclear` takes a comment"
        )
    verdict = Review(
        review_id=f"rv-{uuid4().hex}",
        episode_id=episode_id,
        reviewer=who,
        queue=queue,
        outcome=outcome,
        comment=None if comment is None else cleaned(comment),
        reviewed_at=max(now(), row[0]) if row[0] else now(),  # after every other, whatever the clock that gave it
    )
    Writer(lake).append("reviews", [verdict])
    note(lake, "review", episode_id, {"review_id": verdict.review_id, "outcome": outcome, "queue": queue}, who)
    return verdict


def agreements(lake: str | None, *, queue: str | None = None) -> list[Agreement]:
    """Every reviewer against every rubric version and every other reviewer, over the episodes that both have judged.

    `queue` takes only the reviewer's verdicts from it. A verdict of None is no witness. Only the random queue says how
    often a rubric is wrong in general: the others were chosen because something is odd.
    """
    if queue is not None and queue not in (*RULES, ASKED):
        raise ReviewError(f"no queue {queue!r}; there are {', '.join((*RULES, ASKED))}")
    with connect(lake) as connection:
        verdicts = connection.execute(
            "select reviewer, episode_id, outcome from latest_reviews "
            "where outcome is not null and ($1 is null or queue = $1) order by all",
            [queue],
        ).fetchall()
        rewards = connection.execute(
            "select rubric || '@' || rubric_version, episode_id, outcome from latest_rewards "
            "semi join reviews using (episode_id) where outcome is not null order by all"
        ).fetchall()
    people, rubrics = _by_witness(verdicts), _by_witness(rewards)
    pairs: list[tuple[Literal["rubric", "reviewer"], str, str, dict[str, bool], dict[str, bool]]] = [
        ("rubric", person, rubric, people[person], rubrics[rubric]) for person in people for rubric in rubrics
    ]
    pairs += [("reviewer", first, second, people[first], people[second]) for first, second in combinations(people, 2)]
    found = []
    for kind, first, second, one, other in pairs:
        both = [(one[episode_id], other[episode_id]) for episode_id in one if episode_id in other]
        if both:
            found.append(_agreement(first, second, kind, queue or "all", both))
    return found


def _by_witness(rows: Sequence[tuple[str, str, float]]) -> dict[str, dict[str, bool]]:
    """Solved or not by episode, per witness."""
    found: dict[str, dict[str, bool]] = {}
    for witness, episode_id, outcome in rows:
        found.setdefault(witness, {})[episode_id] = outcome >= SOLVED
    return found


def _agreement(
    first: str, second: str, kind: Literal["rubric", "reviewer"], queue: str, both: Sequence[tuple[bool, bool]]
) -> Agreement:
    """Raw agreement and Cohen's kappa (Cohen, 1960): (observed - by chance) / (1 - by chance)."""
    n, agreed = len(both), sum(one == other for one, other in both)
    one, other = (sum(side) / n for side in zip(*both, strict=True))
    chance = one * other + (1 - one) * (1 - other)
    return Agreement(
        reviewer=first,
        second=second,
        kind=kind,
        queue=queue,
        n=n,
        agreed=agreed,
        agreement=agreed / n,
        kappa=None if chance == 1 else (agreed / n - chance) / (1 - chance),
        reviewer_solved=one,
        second_solved=other,
    )
