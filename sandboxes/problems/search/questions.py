"""Multi-hop problems with exactly one answer, each proved on the environment before it is given out.

Whole countries are held out: every country a question is about belongs to the question's split.
"""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from lakehouse.records import Problem, Split, digest, now
from sandboxes.problems.search.answers import accepted, leading
from sandboxes.problems.search.corpus import LICENCE, SOURCE, Corpus, words
from sandboxes.problems.search.drafts import Draft, borders, bridges, mentions
from sandboxes.problems.search.env import PARAMETER, Spec, World, solved

T = TypeVar("T")

EVAL_SHARE = 0.3  # of the countries
EVAL_OF_PROBLEMS = 1 / 3
BRIDGE_SHARE = 2 / 3
QUESTION_CHARS = 100
ANSWER_CHARS = 40
GUESSABLE_SHARE = 0.1  # an answer that more countries than this share is no evidence of a search


def split_of(country: str) -> Split:
    """Train or eval, by the country's name alone: the same in every corpus."""
    return "eval" if int(digest(country)[:8], 16) < EVAL_SHARE * 2**32 else "train"


def generate(corpus: Corpus, seed: int, n: int) -> list[Problem]:
    """At most n proved problems, repeatable: a third of them eval, in either split two thirds bridges.

    Where a split has too few of one family, the other makes up for it; where both run out, there are fewer than n.
    """
    n_eval = round(n * EVAL_OF_PROBLEMS)
    pool = {"bridge": _shuffled(bridges(corpus), seed), "border": _shuffled(borders(corpus), seed)}
    prover = Prover(corpus)
    problems = [
        *_of_split(prover, "train", n - n_eval, pool),
        *_of_split(prover, "eval", n_eval, pool),
    ]
    return _shuffled(problems, seed)


def _shuffled(items: Iterable[T], seed: int) -> list[T]:
    found = list(items)
    random.Random(seed).shuffle(found)  # noqa: S311 - repeatable, not secret
    return found


def _of_split(prover: "Prover", split: Split, wanted: int, pool: Mapping[str, Sequence[Draft]]) -> list[Problem]:
    bridge = prover.proved(split, pool["bridge"])
    border = prover.proved(split, pool["border"])
    found = [*islice(bridge, round(wanted * BRIDGE_SHARE))]
    found += islice(border, wanted - len(found))
    found += islice(bridge, wanted - len(found))
    return found


class Prover:
    """Turns drafts into problems, and refuses those that do not hold."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self._holders = Counter((p.field, leading(p.text)) for p in corpus.passages)
        self._countries = len(corpus.countries)

    def proved(self, split: Split, drafts: Iterable[Draft]) -> Iterator[Problem]:
        """Problems whose countries all belong to the split."""
        for draft in drafts:
            if all(split_of(country) == split for country in draft.countries):
                problem = self.prove(draft)
                if problem is not None:
                    yield problem

    def prove(self, draft: Draft) -> Problem | None:
        """The draft as a problem, or None where it is too long, gives its answer away, or fails a gate."""
        passage = self.corpus.find(draft.target)
        forms = accepted(passage.text) if passage else []
        if passage is None or not self._fits(draft, forms, passage.field):
            return None
        path = [(tool, {PARAMETER[tool]: argument}) for tool, argument in (*draft.path, ("answer", forms[0]))]
        digest_ = self.corpus.digest
        spec = Spec(corpus=digest_, template=draft.template, target=passage.title, accepted=forms, path=path)
        if solved(World(spec, self.corpus).facts()) or not self._oracle_passes(spec):
            return None
        return self._problem(draft, spec, passage.field)

    def _fits(self, draft: Draft, forms: Sequence[str], field: str) -> bool:
        hidden = (*forms, *draft.countries[1:])
        return (
            0 < min(map(len, forms)) <= max(map(len, forms)) <= ANSWER_CHARS
            and len(draft.question) <= QUESTION_CHARS
            and self._holders[field, forms[0]] <= max(1, GUESSABLE_SHARE * self._countries)
            and not any(mentions(draft.question, phrase) for phrase in hidden)
        )

    def _oracle_passes(self, spec: Spec) -> bool:
        """Whether the oracle's search lists the country it opens next, no step is an error, and it scores."""
        world = World(spec, self.corpus)
        observations = [world.call(tool, arguments) for tool, arguments in spec.path]
        first_open = next(arguments["title"] for tool, arguments in spec.path if tool == "open")
        country = first_open.split(" / ")[0]
        listed = any(line[3:].startswith(f"{country} / ") for line in observations[0].text.splitlines())
        return listed and not any(seen.is_error for seen in observations) and solved(world.facts())

    def _problem(self, draft: Draft, spec: Spec, field: str) -> Problem:
        country = draft.countries[0]
        return Problem(
            problem_id=f"search/{self.corpus.name}/{'-'.join(words(country))}-{digest(draft.question)[:8]}",
            kind="search",
            source=SOURCE if self.corpus.name == "factbook" else self.corpus.name,
            split=split_of(country),
            title=f"{field} ({draft.template})",
            prompt=draft.question,
            spec=spec.model_dump_json(),
            licence=LICENCE,
            allowed_uses=["training", "evaluation"],
            difficulty=draft.difficulty,
            oracle_passed=True,
            null_failed=True,
            created_at=now(),
        )
