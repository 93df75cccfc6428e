"""One version onto several engines, one after another or a few at a time: while these are swapped the others serve.

The first engine decides. Where it does not come to serve the version, whatever it is for, nothing else is touched and it is
put back to what it served. Once it does, the version is good; a later engine that fails has a trouble of its own: it is left
out, which means that the gateway sends it no policy's calls until it is proven, and the others go on.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
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
    at_once: int = 1,
) -> list[Outcome]:
    """The outcome of every engine that was tried, in order; only the first one where that one failed.

    The first is alone. The others follow in groups of `at_once`, each group proven, or left out, before the next begins.
    """

    def tried(url: str) -> Outcome:
        try:
            return Outcome(url, deploy(url))
        except ServingError as error:
            return Outcome(url, None, error)

    def following(url: str) -> Outcome:
        found = tried(url)
        if not found.served:  # at once, whatever the others of its group do: it may take calls with unproven weights
            leave_out(url)
        return found

    first, others = tried(urls[0]), urls[1:]
    if not first.served:
        put_back(first.url)
        return [first]
    outcomes = [first]
    with ThreadPoolExecutor(at_once) as threads:
        for at in range(0, len(others), at_once):
            group = [threads.submit(following, url) for url in others[at : at + at_once]]
            wait(group)
            outcomes += [one.result() for one in group]
    return outcomes
