"""What the loop sees of the world: groups, steps, and the parts that do the work."""

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Protocol, TypeVar


@dataclass(frozen=True)
class Group:
    """A problem and its samples, of which it is written down that they shall be played."""

    group_id: str
    problem_id: str


Begun = TypeVar("Begun", bound=Group)  # a group as `begin` gives it to `play`
Played = TypeVar("Played")  # what a group that was played leaves, on its way from `play` to `settle`


@dataclass(frozen=True)
class Settled:
    """A group whose samples have all ended, landed and been judged."""

    group_id: str
    problem_id: str
    samples: int  # that were dispatched
    scored: Sequence[frozenset[int]]  # of each sample with a reward: the weight versions that its tokens came from
    spread: float  # the highest outcome less the lowest, old samples too: the young are compared with them
    failures: Mapping[str, int] = field(
        default_factory=dict
    )  # samples that say nothing of the policy, by how they ended


@dataclass(frozen=True)
class Step:
    """A batch that was taken. One without a version had nothing to train on, or is not trained yet."""

    number: int  # from 0 on
    groups: frozenset[str]  # all it consumed, dropped ones included
    version: int | None
    finished: bool  # in service, or nothing to train on


@dataclass(frozen=True)
class State:
    """All that there is of a loop. A loop keeps nothing else from one process to the next."""

    settled: Sequence[Settled] = ()  # in the order in which they settled, consumed ones included
    steps: Sequence[Step] = ()  # by number; only the last may be unfinished


@dataclass(frozen=True)
class Standing:
    """The version in service, which the next step starts from, and all it was trained from, itself included."""

    version: int
    lineage: frozenset[int]

    def age(self, versions: Set[int]) -> int:
        """How many steps of training lie between the oldest of these, all of the line, and the version in service.

        Counted along the line: a version that was rolled back has a number and is no step.
        """
        oldest = min(versions)
        return sum(version > oldest for version in self.lineage)


class Parts(Protocol[Begun, Played]):
    """What the loop has others do. Every method has deadlines of its own, and may be called again after a crash."""

    async def recall(self) -> State:
        """Take up what there is of the loop: what landed and was not judged is judged now."""

    async def standing(self) -> Standing:
        """Which version the loop goes on from: a gate or a person may have moved it. It is in service."""

    async def begin(self, count: int, without: Collection[str]) -> Sequence[Begun]:
        """Write down that at most `count` groups, at least one, shall be played: those broken off earlier come first.

        `without`: problems that are not drawn. Raises where there are no more.
        """

    async def play(self, groups: Sequence[Begun], ended: Callable[[Played], None]) -> None:
        """Play the groups side by side; `ended` is told of each as soon as all its samples have ended."""

    async def settle(self, played: Sequence[Played]) -> Sequence[Settled]:
        """Land and judge what was played."""

    async def train(self, number: int, groups: Collection[str]) -> int | None:
        """Train step `number` on these groups and register what comes of it; None where none can be trained on.

        A step that was broken off goes on with the same groups.
        """

    async def serve(self, number: int, version: int) -> bool:
        """Put a version in service, under running calls, with a proof. False, and nothing is touched, where the loop does not go
        on from what it was trained from any more."""

    async def examine(self, number: int, version: int) -> None:
        """After a step, which may have trained another one or none: evaluate a version of the loop's own that is in service,
        and let the gate decide what stays there."""
