"""Questions over a corpus of entities, each proved on the environment before it is given out.

A corpus here is {entity: {field: text}}: one document per entity, one line "Field: text" per field.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from lakehouse.records import Problem, Split, digest, now
from sandboxes.problems.search.answers import AnswerType, type_of
from sandboxes.problems.search.corpus import words
from sandboxes.problems.search.documents.corpus import Corpus
from sandboxes.problems.search.documents.text import LINE_CHARS, holding, terms
from sandboxes.problems.search.documents.world import PARAMETER, Spec, World
from sandboxes.problems.search.env import solved

T = TypeVar("T")
Entities = Mapping[str, Mapping[str, str]]
Step = tuple[str, dict[str, str | int]]

EVAL_SHARE = 0.3  # of the entities
EVAL_OF_PROBLEMS = 1 / 3
QUESTION_CHARS = 240
ANSWER_CHARS = 60
GUESSABLE_SHARE = 0.03  # an answer that more entities than this share is no evidence of a search
LEAST_OF_TARGET = 3
TARGET_SHARE = 0.02  # of the problems, at most, whose answers stand in one document: what all depend on is soon known


@dataclass(frozen=True)
class Draft:
    """A question before it is proved. `reads` are the documents to read, each with the field that matters there, in order;
    the last one has the answer. A question is about its `subjects`: they are all of one split.
    """

    template: str
    question: str
    queries: tuple[tuple[str, str], ...]  # a search, and the entity that it must list
    reads: tuple[tuple[str, str], ...]
    subjects: tuple[str, ...]
    compared: bool = False  # whether values must be weighed against each other

    @property
    def hops(self) -> int:
        """Documents that must be read."""
        return len({entity for entity, _ in self.reads})

    @property
    def difficulty(self) -> float:
        """From 0.45 for two documents to 0.95; above all problems of the single-passage tools that quickstart draws."""
        return round(min(0.95, 0.15 + 0.15 * self.hops + (0.05 if self.compared else 0)), 2)


@cache
def split_of(group: str) -> Split:
    """Train or eval, by name alone: the same in every corpus and every version of it."""
    return "eval" if int(digest(group)[:8], 16) < EVAL_SHARE * 2**32 else "train"


def generate(
    corpus: Corpus,
    entities: Entities,
    drafts: Mapping[str, Iterable[Draft]],
    *,
    size: int,
    seed: int,
    forms: Callable[[str], list[str]],
    group: Callable[[str], str] = str,
) -> list[Problem]:
    """At most `size` proved problems, repeatable: a third of them eval, shared evenly by the families of drafts.

    `forms` gives the accepted forms of a field's text. Entities of one `group` (the packages of one source) stay on one side
    of the split. A family that runs out leaves its share to the others.
    """
    prover = Prover(corpus, entities, forms, group, most_of_target=max(LEAST_OF_TARGET, round(size * TARGET_SHARE)))
    held = round(size * EVAL_OF_PROBLEMS)
    pool = [_shuffled(family, seed) for family in drafts.values()]
    found: list[Problem] = []
    for split, wanted in (("train", size - held), ("eval", held)):
        found += _in_turn([prover.proved(split, family) for family in pool], wanted)
    return _shuffled(found, seed)


def _shuffled(items: Iterable[T], seed: int) -> list[T]:
    found = list(items)
    random.Random(seed).shuffle(found)  # noqa: S311 - repeatable, not secret
    return found


def _in_turn(streams: list[Iterator[Problem]], wanted: int) -> list[Problem]:
    """One of each stream after the other, until there are enough or all have ended."""
    found: dict[str, Problem] = {}
    while streams and len(found) < wanted:
        for stream in list(streams):
            problem = next(stream, None)
            if problem is None:
                streams.remove(stream)
            elif len(found) < wanted:
                found.setdefault(problem.problem_id, problem)
    return list(found.values())


class Prover:
    """Turns drafts into problems, and refuses those that do not hold."""

    def __init__(
        self,
        corpus: Corpus,
        entities: Entities,
        forms: Callable[[str], list[str]],
        group: Callable[[str], str],
        most_of_target: int,
    ) -> None:
        self.corpus = corpus
        self._most_of_target = most_of_target
        self._targets: Counter[str] = Counter()
        self.entities = entities
        self._forms = forms
        self._group = group
        self._holders = Counter(
            (name, form) for fields in entities.values() for name, text in fields.items() for form in forms(text)[:1]
        )

    def proved(self, split: str, drafts: Iterable[Draft]) -> Iterator[Problem]:
        """Problems whose subjects all belong to the split."""
        for draft in drafts:
            if all(split_of(self._group(subject)) == split for subject in draft.subjects):
                problem = self.prove(draft)
                if problem is not None:
                    yield problem

    def prove(self, draft: Draft) -> Problem | None:
        """The draft as a problem, or None where it is too long, gives its answer away, needs no hop, or fails a gate."""
        entity, field = draft.reads[-1]
        forms = self._forms(self.entities[entity][field])
        if not self._fits(draft, forms) or self._is_one_search(draft, forms):
            return None
        path = self._path(draft, forms[0])
        spec = Spec(
            corpus=self.corpus.digest,
            corpus_name=self.corpus.name,
            template=draft.template,
            hops=draft.hops,
            answer_type=answer_type(field, forms[0]),
            accepted=forms,
            support=[*dict.fromkeys(read for read, _ in draft.reads if read != entity), entity],
            path=path,
        )
        if solved(World(spec, self.corpus).facts()) or not self._oracle_passes(draft, spec):
            return None
        self._targets[entity] += 1
        return self._problem(draft, spec)

    def _fits(self, draft: Draft, forms: Sequence[str]) -> bool:
        entity, field = draft.reads[-1]
        return (
            draft.hops > 1
            and self._targets[entity] < self._most_of_target
            and len(draft.question) <= QUESTION_CHARS
            and 0 < min(map(len, forms)) <= max(map(len, forms)) <= ANSWER_CHARS
            and self._holders[field, forms[0]] <= max(1, GUESSABLE_SHARE * len(self.entities))
            and not any(mentions(draft.question, phrase) for phrase in (*forms, entity))
        )

    def _is_one_search(self, draft: Draft, forms: Sequence[str]) -> bool:
        """Whether searching for the question itself already lists the document with the answer, or shows the answer."""
        shown = World(_blank(self.corpus), self.corpus)
        seen = shown.call("search", {PARAMETER["search"]: draft.question})
        return draft.reads[-1][0] in shown.results[0] or any(mentions(seen.text, form) for form in forms)

    def _path(self, draft: Draft, answer: str) -> list[Step]:
        """The oracle's way: search, open, find what is not on the first page, answer."""
        searches = {entity: query for query, entity in draft.queries}
        path: list[Step] = []
        opened = ""
        for entity, field in draft.reads:
            if entity != opened and entity in searches:
                path.append(("search", {"query": searches.pop(entity)}))
            if entity != opened:
                path.append(("open", {"title": entity}))
            opened = entity
            path += self._beyond_first_page(entity, field)
        return [*path, ("answer", {"text": answer})]

    def _beyond_first_page(self, entity: str, field: str) -> list[Step]:
        document = self.corpus.find(entity)
        assert document is not None  # an entity is a document
        line = f"{field}: {self.entities[entity][field]}"
        if line in document.pages[0]:
            return []
        hits = [shown for page in document.pages for shown in holding(page, terms(field))]
        if len(line) <= LINE_CHARS and line in hits[:3]:
            return [("find", {"text": field})]
        return [("open", {"title": entity, "page": n}) for n in range(2, len(document.pages) + 1)]

    def _oracle_passes(self, draft: Draft, spec: Spec) -> bool:
        """Whether what is opened or answered was named before it, no step is an error, and it scores."""
        world = World(spec, self.corpus)
        known = [draft.question]
        for tool, arguments in spec.path:
            named = arguments.get("title") or arguments.get("text") if tool in ("open", "answer") else None
            if named is not None and not any(mentions(text, str(named)) for text in reversed(known)):
                return False
            seen = world.call(tool, arguments)
            if seen.is_error:
                return False
            known.append(seen.text)
        return solved(world.facts())

    def _problem(self, draft: Draft, spec: Spec) -> Problem:
        subject, field = draft.subjects[0], draft.reads[-1][1]
        return Problem(
            problem_id=f"search/{self.corpus.name}/{'-'.join(words(subject))}-{digest(draft.question)[:8]}",
            kind="search",
            source=self.corpus.source,
            split=split_of(self._group(subject)),
            title=f"{field} ({draft.template}, {draft.hops} hops)",
            prompt=draft.question,
            spec=spec.model_dump_json(),
            licence=self.corpus.licence,
            allowed_uses=["training", "evaluation"],
            difficulty=draft.difficulty,
            oracle_passed=True,
            null_failed=True,
            created_at=now(),
        )


def answer_type(field: str, form: str) -> AnswerType:
    """Versions look like numbers and are none."""
    return "text" if field == "Version" else type_of(form)


def mentions(text: str, phrase: str) -> bool:
    """Whether the text holds the phrase, word by word."""
    return f" {' '.join(terms(phrase))} " in f" {' '.join(terms(text))} "


def _blank(corpus: Corpus) -> Spec:
    return Spec(
        corpus=corpus.digest,
        corpus_name=corpus.name,
        template="",
        hops=0,
        answer_type="text",
        accepted=[],
        support=[],
        path=[],
    )
