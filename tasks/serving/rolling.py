"""One version onto several engines, one after another: while one is swapped the others serve.

The first engine decides. Where it does not come to serve the version, whatever it is for, nothing else is touched and it is
put back to what it served. Once it does, the version is good; a later engine that fails has a trouble of its own: it is left
out, which means that the gateway sends it no policy's calls until it is proven, and the others go on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tasks.serving.errors import ServingError
from tasks.serving.proof import Proof


@dataclass(frozen=True)
class Outcome:
    """What came of one engine. Without a proof `error` says what was in the way."""

    url: str
    proof: Proof | None
    error: ServingError | None = None

    @property
    def served(self) -> bool:
        """Whether the engine provably serves the version."""
        return self.proof is not None and self.proof.passed

    @property
    def reason(self) -> str:
        """For people."""
        return self.proof.reason if self.proof else str(self.error)


def roll(
    urls: Sequence[str],
    deploy: Callable[[str], Proof],
    *,
    put_back: Callable[[str], None],
    leave_out: Callable[[str], None],
) -> list[Outcome]:
    """The outcome of every engine that was tried, in order; only the first one where that one failed."""
    outcomes: list[Outcome] = []
    for url in urls:
        try:
            found = Outcome(url, deploy(url))
        except ServingError as error:
            found = Outcome(url, None, error)
        outcomes.append(found)
        if found.served:
            continue
        if len(outcomes) == 1:
            put_back(url)
            break
        leave_out(url)
    return outcomes
