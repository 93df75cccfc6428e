"""Question sets as problems: rows that carry their passages become a corpus of their own, others search a named one."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from lakehouse.records import Problem, digest, now
from sandboxes.problems.foreign import BadRow, Row, Terms, rows
from sandboxes.problems.search.answers import type_of
from sandboxes.problems.search.corpus import words
from sandboxes.problems.search.documents import shipped, store
from sandboxes.problems.search.documents.corpus import Corpus, Document
from sandboxes.problems.search.documents.formats import FORMATS, Question, Unfit
from sandboxes.problems.search.documents.formats import passage as read_passage
from sandboxes.problems.search.documents.prove import Step, mentions
from sandboxes.problems.search.documents.world import Spec, World
from sandboxes.problems.search.env import solved

log = logging.getLogger(__name__)

YES_NO = frozenset({"yes", "no"})
TOLD = 20  # bad rows that an error names


def problems(form: str, path: Path, terms: Terms) -> list[Problem]:
    """Problems `search/NAME/...` from a file of rows in one of FORMATS; their corpus is kept under the home folder.

    BadRow names every row that is no problem, by its number; with `terms.skip_bad` those are logged and left out.
    """
    if terms.name in {*shipped.SIZES, "factbook"}:
        raise BadRow(f"the name {terms.name} is a shipped set's: choose another")
    if FORMATS[form].own_corpus == bool(terms.corpus):
        raise BadRow(f"{form} rows " + ("carry their passages: give no corpus" if terms.corpus else "need a corpus"))
    questions, bad = _questions(form, path)
    titles = _titles(passage for question in questions.values() for passage in question.passages)
    if not questions:
        raise BadRow(_told(path, form, bad) if bad else f"{path.name} holds no rows")
    corpus = _named(terms.corpus, terms) if terms.corpus else _of(titles, terms, path)
    found: dict[str, Problem] = {}
    for number, question in questions.items():
        try:
            problem = _problem(question, corpus, titles, terms)
            if problem.problem_id in found:
                raise Unfit("an earlier row has the same id or question")
            found[problem.problem_id] = problem
        except Unfit as error:
            bad.append(Row(number, None, str(error)))
    if bad and not (terms.skip_bad and found):
        raise BadRow(_told(path, form, bad))
    for row in sorted(bad, key=lambda row: row.number):
        log.warning("%s, row %d left out: %s", path.name, row.number, row.wrong)
    store.save(corpus)
    return list(found.values())


def _questions(form: str, path: Path) -> tuple[dict[int, Question], list[Row]]:
    found: dict[int, Question] = {}
    bad: list[Row] = []
    for row in rows(path):
        if row.value is None:
            bad.append(row)
            continue
        try:
            found[row.number] = FORMATS[form].read(row.value)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            reason = str(error) if isinstance(error, Unfit) else f"not a row of this form: {error!r}"
            bad.append(Row(row.number, None, reason))
    return found, bad


def _told(path: Path, form: str, bad: list[Row]) -> str:
    lines = [f"row {row.number}: {row.wrong}" for row in sorted(bad, key=lambda row: row.number)]
    more = [f"and {len(lines) - TOLD} more"] if len(lines) > TOLD else []
    told = "\n".join([*lines[:TOLD], *more])
    return (
        f"{path.name}: {len(lines)} rows are no {form} problems; mend them, or leave them out with --skip-bad\n{told}"
    )


def _titles(passages: Iterable[Document]) -> dict[Document, str]:
    """Passage -> its title in the corpus: texts that share one are told apart by a number, "Title (2)"."""
    found: dict[Document, str] = {}
    taken: Counter[str] = Counter()
    for passage in passages:
        if passage not in found:
            taken[passage.title] += 1
            found[passage] = passage.title if taken[passage.title] == 1 else f"{passage.title} ({taken[passage.title]})"
    return found


def _of(titles: Mapping[Document, str], terms: Terms, path: Path) -> Corpus:
    documents = (Document(title, passage.text) for passage, title in titles.items())
    return Corpus(documents, name=terms.name, source=path.name, licence=terms.licence)


def _named(corpus: str, terms: Terms) -> Corpus:
    """The corpus of this name, or one from a file of passages, each of which must be good."""
    path = Path(corpus)
    if not path.suffix:
        return store.named(corpus)
    passages: list[Document] = []
    for row in rows(path):
        try:
            if row.value is None:
                raise Unfit(row.wrong)
            passages.append(read_passage(row.value))
        except Unfit as error:
            raise BadRow(f"{path.name}, row {row.number}: {error}") from error
    if not passages:
        raise BadRow(f"{path.name} holds no passages")
    return _of(_titles(passages), terms, path)


def _problem(question: Question, corpus: Corpus, titles: Mapping[Document, str], terms: Terms) -> Problem:
    """The question as a problem; Unfit where its answer is not to be had."""
    support = _with_answer_last(question, titles)
    answer = question.answers[0]
    spec = Spec(
        corpus=corpus.digest,
        corpus_name=corpus.name,
        template=f"{terms.name}/{question.hops} hops",
        hops=question.hops,
        answer_type=type_of(answer),
        accepted=list(dict.fromkeys(question.answers)),
        support=support,
        path=list(_path(question, corpus, support)),
    )
    world = World(spec, corpus)
    failed = [tool for tool, arguments in spec.path if world.call(tool, arguments).is_error]
    if failed or not solved(world.facts()):
        raise Unfit(f"its own answer {answer!r} does not earn full marks")
    key = "-".join(words(question.key))[:48]
    return Problem(
        problem_id=f"search/{terms.name}/{key or digest(question.question)[:12]}",
        kind="search",
        source=corpus.source,
        split=terms.split,
        title=f"{question.hops} hops",
        prompt=question.question,
        spec=spec.model_dump_json(),
        licence=terms.licence,
        allowed_uses=list(terms.allowed_uses),
        difficulty=question.difficulty or round(min(0.95, 0.15 + 0.15 * max(2, question.hops)), 2),
        oracle_passed=False,
        null_failed=False,
        ungated=True,  # until `lakeloop problems import` has run the gates
        created_at=now(),
    )


def _with_answer_last(question: Question, titles: Mapping[Document, str]) -> list[str]:
    """The titles to read, the one with the answer last. Unfit where none of them has it."""
    if not question.support or YES_NO & {answer.lower() for answer in question.answers}:
        return [titles[passage] for passage in question.support]
    holding = [p for p in question.support if any(mentions(f"{p.title} {p.text}", a) for a in question.answers)]
    if not holding:
        raise Unfit("its answer stands in none of its supporting documents")
    last = holding[-1]
    return [*(titles[passage] for passage in question.support if passage != last), titles[last]]


def _path(question: Question, corpus: Corpus, support: list[str]) -> Iterator[Step]:
    """The oracle's way: find and open each supporting document, where they are known, then answer."""
    if not support:
        yield "search", {"query": question.question}
    for title in support:
        yield "search", {"query": title}
        yield "open", {"title": title}
    document = corpus.find(support[-1]) if support else None
    pages = document.pages if document else ()
    with_answer = (n for n, page in enumerate(pages, 1) if any(mentions(page, answer) for answer in question.answers))
    if (number := next(with_answer, 1)) > 1:
        yield "open", {"title": support[-1], "page": number}
    yield "answer", {"text": question.answers[0]}
