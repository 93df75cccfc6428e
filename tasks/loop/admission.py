"""How many groups may begin, which count, and whether the terms of a loop can work out at all.

The formula is AReaL's (arXiv 2505.24298, section 5.1), in groups: with η versions of staleness, batches of B, and `turns`
finished steps,

    capacity = min(max_in_flight - running, (η + turns + 1) B - (accepted + running))

`accepted` are groups that count, those already trained on included. A group that does not count is replaced. Admission bounds
the age of a group when it begins; a slow one may be older when its batch is taken, so age is looked at again then.
"""

from dataclasses import dataclass
from typing import Literal

from tasks.loop.parts import Settled, Standing

Partial = Literal["keep", "drop"]
LEAST = 2  # scored samples of a group: one alone has no baseline
SAME = 1e-6  # outcomes closer than this are the same, as in the filter `grpo`


class Infeasible(ValueError):
    """These terms can only end in a deadlock or in nothing; the message says which to change."""


@dataclass(frozen=True)
class Terms:
    """What a loop keeps to. Times in seconds of the event loop's clock."""

    batch: int  # groups per step
    steps: int  # in all, those of earlier processes included
    evaluate_every: int = 1  # steps from one evaluation to the next; the last step always has one
    samples: int = 8  # per group
    staleness: int = 0  # η, in steps of training
    max_in_flight: int | None = None  # groups; None: as many as staleness admits
    partial: Partial = "keep"  # a group of which not every sample is scored
    fill: bool = False  # replace groups without variance (dynamic sampling, DAPO, arXiv 2503.14476)
    deadline_s: float = 300.0  # of an episode
    group_deadline_s: float = 900.0  # of a group, from its first sample's start
    starved_s: float = 1800.0  # without a group that counts, while one is waited for
    strikes: int = 2  # groups of a problem that failed, and none that did not, until it is not drawn any more

    @property
    def least(self) -> int:
        """Scored and fresh samples that a group needs to count."""
        return LEAST if self.partial == "keep" else self.samples


def check(terms: Terms, drawable: int | None = None) -> None:
    """Infeasible where the terms cannot work out. `drawable`: how many problems there are to draw from, if known."""
    rules = {
        f"staleness is {terms.staleness}: it is a number of versions, 0 or more": terms.staleness >= 0,
        f"a batch is {terms.batch} problems: ask for at least one": terms.batch >= 1,
        f"{terms.steps} rounds: ask for at least one": terms.steps >= 1,
        f"an evaluation every {terms.evaluate_every} steps: ask for at least 1": terms.evaluate_every >= 1,
        f"{terms.samples} samples: a group's baseline needs at least {LEAST}": terms.samples >= LEAST,
        f"max_in_flight is {terms.max_in_flight}: less than one group in flight never makes a batch": terms.max_in_flight
        is None
        or terms.max_in_flight >= 1,
        f"an episode may take {terms.deadline_s:g} s and its whole group {terms.group_deadline_s:g} s: slow episodes would "
        "always be cut off; raise group_deadline_s or lower deadline_s": terms.group_deadline_s >= terms.deadline_s,
        f"the loop would give up after {terms.starved_s:g} s without a group, while one may take {terms.group_deadline_s:g} s: "
        "raise starved_s": terms.starved_s > terms.group_deadline_s,
        f"a batch is {terms.batch} problems and {drawable} can be drawn: ask for fewer, raise max_difficulty, or load more "
        "(`lakeloop problems load`)": drawable is None or drawable >= terms.batch,
    }
    broken = [said for said, kept in rules.items() if not kept]
    if broken:
        raise Infeasible("; ".join(broken))


def capacity(terms: Terms, *, turns: int, accepted: int, running: int) -> int:
    """How many groups may begin now; never negative, and never more than the steps that are left can use."""
    versions = min(terms.staleness + turns + 1, terms.steps)
    admitted = versions * terms.batch - (accepted + running)
    places = admitted if terms.max_in_flight is None else terms.max_in_flight - running
    return max(0, min(places, admitted))


def drops(group: Settled, terms: Terms, standing: Standing) -> str | None:
    """Why a group does not count, in the words of the selection's ledger; None where it counts."""
    if len(group.scored) < LEAST:
        return "singleton_group" if group.scored else "not_trainable"
    if len(group.scored) < terms.least:
        return "partial_group"
    descended = [versions for versions in group.scored if versions <= standing.lineage]
    if len(descended) < terms.least:
        return "not_an_ancestor"
    if sum(standing.age(versions) <= terms.staleness for versions in descended) < terms.least:
        return "stale"
    return "zero_variance_group" if terms.fill and group.spread < SAME else None
