"""What the loop knows of its groups and steps: what the parts recalled, kept up as groups settle and steps finish."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from tasks.loop.admission import LEAST, Terms, capacity, drops
from tasks.loop.parts import Group, Settled, Standing, State, Step

BLAMELESS = ("infra_error", "cancelled", "erased")  # endings that say nothing of the problem either


class Book:
    """Groups in flight, waiting and consumed. Losing it costs nothing: `State` and what is left to play make it again."""

    def __init__(self, terms: Terms, state: State, standing: Standing) -> None:
        self.terms = terms
        self.standing = standing
        self.steps: list[Step] = list(state.steps)
        self.running: dict[str, Group] = {}
        self._waiting: dict[str, Settled] = {}  # for a batch, in the order in which they settled
        self._problems: dict[str, _Record] = {}
        consumed = frozenset[str]().union(*(step.groups for step in state.steps))
        for group in state.settled:
            self._note(group)
            if group.group_id not in consumed:
                self._waiting[group.group_id] = group

    @property
    def turns(self) -> int:
        """Finished steps."""
        return sum(step.finished for step in self.steps)

    @property
    def accepted(self) -> int:
        """Groups that count: a batch of every step that was taken, and those that wait for theirs."""
        return len(self.steps) * self.terms.batch + len(self._counting())

    @property
    def poison(self) -> dict[str, str]:
        """Problems that are not drawn any more, and how their samples ended."""
        return {name: record.told for name, record in self._problems.items() if record.strikes >= self.terms.strikes}

    def capacity(self) -> int:
        """How many groups may begin now."""
        return capacity(self.terms, turns=self.turns, accepted=self.accepted, running=len(self.running))

    def begin(self, groups: Sequence[Group]) -> None:
        """These are in flight now."""
        self.running |= {group.group_id: group for group in groups}

    def settle(self, group: Settled) -> str | None:
        """A group has settled; why it does not count, or None."""
        self.running.pop(group.group_id, None)
        self._waiting[group.group_id] = group
        self._note(group)
        return drops(group, self.terms, self.standing)

    def batch(self) -> Sequence[str] | None:
        """The groups of the next step, if enough count: the oldest of these, and all that do not count, for the ledger."""
        counting = self._counting()
        if len(counting) < self.terms.batch:
            return None
        oldest = sorted(counting, key=lambda group: min(map(min, group.scored)))[: self.terms.batch]
        dropped = [group for group in self._waiting.values() if drops(group, self.terms, self.standing)]
        return [group.group_id for group in (*oldest, *dropped)]

    def open(self) -> Step | None:
        """The step that was begun and is not finished."""
        return self.steps[-1] if self.steps and not self.steps[-1].finished else None

    def take(self, groups: Sequence[str]) -> Step:
        """A step begins with these groups, which no other one will have."""
        self.steps.append(Step(len(self.steps), frozenset(groups), None, finished=False))
        for name in groups:
            del self._waiting[name]
        return self.steps[-1]

    def finish(self, version: int | None) -> Step:
        """The open step is done."""
        self.steps[-1] = replace(self.steps[-1], version=version, finished=True)
        return self.steps[-1]

    def dropped(self) -> Counter[str]:
        """Groups that have settled since the last batch and do not count, by why."""
        reasons = (drops(group, self.terms, self.standing) for group in self._waiting.values())
        return Counter(reason for reason in reasons if reason)

    def picture(self) -> str:
        """In words: what there is, and what is missing."""
        dropped = ", ".join(f"{count} {reason}" for reason, count in self.dropped().most_common()) or "none"
        words = (
            f"step {len(self.steps) + 1} of {self.terms.steps} has {len(self._counting())} of {self.terms.batch} groups, "
            f"{len(self.running)} are in flight, dropped: {dropped}"
        )
        if self.poison:
            words += "; not drawn any more: " + "; ".join(f"{name} ({how})" for name, how in self.poison.items())
        return words

    def _counting(self) -> list[Settled]:
        return [group for group in self._waiting.values() if not drops(group, self.terms, self.standing)]

    def _note(self, group: Settled) -> None:
        record = self._problems.setdefault(group.problem_id, _Record())
        blameless = sum(group.failures.get(ending, 0) for ending in BLAMELESS)
        if len(group.scored) >= LEAST:
            record.sound = True
        elif len(group.scored) + blameless < LEAST:  # else these might have been the samples that it lacks
            record.failed += 1
            record.endings.update(group.failures)


class _Record:
    """How the groups of one problem went."""

    def __init__(self) -> None:
        self.sound = False  # one of them had enough samples with a reward
        self.failed = 0  # that did not for reasons of the problem's
        self.endings: Counter[str] = Counter()

    @property
    def strikes(self) -> int:
        return 0 if self.sound else self.failed

    @property
    def told(self) -> str:
        return ", ".join(f"{count} {status}" for status, count in self.endings.most_common())
