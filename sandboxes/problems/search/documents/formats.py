"""Question sets of the field, row by row: HotpotQA (arXiv 1809.09600), MuSiQue (arXiv 2108.00573), Search-R1 (arXiv 2503.09516).

A reader makes a `Question` of a row or raises Unfit, which says what is wrong with it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sandboxes.problems.search.documents.corpus import Document


class Unfit(ValueError):
    """A row that is no question. The text says why."""


@dataclass(frozen=True)
class Question:
    """A row, understood. `support` are the passages it needs, in the order of reading; empty where nobody knows."""

    key: str  # the row's own id, or nothing
    question: str
    answers: list[str]  # the canonical one first
    passages: list[Document] = field(default_factory=list)
    support: list[Document] = field(default_factory=list)
    hops: int = 1
    difficulty: float | None = None


@dataclass(frozen=True)
class Format:
    """How rows of one form are read."""

    read: Callable[[Mapping[str, Any]], Question]
    own_corpus: bool  # whether rows carry their passages


_LEVELS = {"easy": 0.4, "medium": 0.6, "hard": 0.8}


def hotpotqa(row: Mapping[str, Any]) -> Question:
    """Rows as published in JSON (pairs), or as the model hub's Parquet files have them (columns)."""
    context, facts = _need(row, "context"), _need(row, "supporting_facts")
    pairs = zip(context["title"], context["sentences"], strict=True) if isinstance(context, dict) else context
    passages = [Document(_text(title, "title"), "".join(sentences).strip()) for title, sentences in pairs]
    titles = facts["title"] if isinstance(facts, dict) else [fact[0] for fact in facts]
    wanted = list(dict.fromkeys(titles))
    support = [next((p for p in passages if p.title == title), None) for title in wanted]
    if None in support:
        raise Unfit("a supporting fact names a document that is not in the context")
    return Question(
        key=str(row.get("_id") or row.get("id") or ""),
        question=_text(row.get("question"), "question"),
        answers=[_text(row.get("answer"), "answer")],
        passages=passages,
        support=[p for p in support if p],
        hops=len(wanted),
        difficulty=_LEVELS.get(str(row.get("level"))),
    )


def musique(row: Mapping[str, Any]) -> Question:
    """Answerable rows; the hops are those of the question's decomposition."""
    if row.get("answerable") is False:
        raise Unfit("the row is marked as not answerable")
    paragraphs = _need(row, "paragraphs")
    passages = [
        Document(_text(p.get("title"), "title"), _text(p.get("paragraph_text"), "paragraph_text")) for p in paragraphs
    ]
    steps = [step.get("paragraph_support_idx") for step in row.get("question_decomposition") or ()]
    by_index = {p.get("idx", n): passage for n, (p, passage) in enumerate(zip(paragraphs, passages, strict=True))}
    ordered = [by_index[step] for step in steps if step in by_index]
    marked = [passage for p, passage in zip(paragraphs, passages, strict=True) if p.get("is_supporting")]
    return Question(
        key=str(row.get("id") or ""),
        question=_text(row.get("question"), "question"),
        answers=[_text(row.get("answer"), "answer"), *(row.get("answer_aliases") or ())],
        passages=passages,
        support=list(dict.fromkeys([*ordered, *marked])),
        hops=len(steps) or len(marked),
    )


def search_r1(row: Mapping[str, Any]) -> Question:
    """A question and its golden answers; the corpus is one apart."""
    target = ((row.get("reward_model") or {}).get("ground_truth") or {}).get("target")
    answers = row.get("golden_answers") or target or ()
    answers = [answers] if isinstance(answers, str) else list(answers)
    if not answers:
        raise Unfit("the row has no 'golden_answers'")
    return Question(
        key=str(row.get("id") or ""),
        question=_text(row.get("question"), "question"),
        answers=[_text(answer, "golden_answers") for answer in answers],
    )


FORMATS: Mapping[str, Format] = {
    "hotpotqa": Format(hotpotqa, own_corpus=True),
    "musique": Format(musique, own_corpus=True),
    "search-r1": Format(search_r1, own_corpus=False),
}


def passage(row: Mapping[str, Any]) -> Document:
    """A row of a corpus file: {"title", "text"}, or Search-R1's {"contents"}, the title in quotes on its first line."""
    if "contents" in row:
        title, _, text = _text(row["contents"], "contents").partition("\n")
        return Document(title.strip().strip('"'), text.strip())
    return Document(_text(row.get("title"), "title"), _text(row.get("text"), "text"))


def _need(row: Mapping[str, Any], name: str) -> Any:
    if not row.get(name):
        raise Unfit(f"the row has no {name!r}; it has {', '.join(sorted(map(str, row)))}")
    return row[name]


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise Unfit(f"{name!r} is not a text")
    return value.strip()
