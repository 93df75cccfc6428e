import asyncio
import json
import logging

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sandboxes.backends.scripted import ScriptedBackend
from sandboxes.problems.base import EnvironmentFailure
from sandboxes.problems.foreign import BadRow, Terms
from sandboxes.problems.gates import gates
from sandboxes.problems.search import KIND
from sandboxes.problems.search.documents import store
from sandboxes.problems.search.documents.imports import problems

HOTPOT = {
    "_id": "5a8b57f2",
    "question": "What was the capital of the country that Alda ruled?",
    "answer": "Tamsin",
    "level": "medium",
    "supporting_facts": [["Aland", 1], ["Alda", 0]],
    "context": [
        ["Alda", ["Alda ruled Aland."]],
        ["Aland", ["Aland is old.", " Its capital was Tamsin."]],
        ["Cedar", ["A tree."]],
    ],
}
YES = HOTPOT | {"_id": "yes", "question": "Are Alda and Aland both old?", "answer": "yes"}
COLUMNS = HOTPOT | {
    "id": "columns",
    "supporting_facts": {"title": ["Aland", "Alda"], "sent_id": [1, 0]},
    "context": {
        "title": ["Alda", "Aland"],
        "sentences": [["Alda ruled Aland."], ["Aland is old.", " Its capital was Tamsin."]],
    },
}
del COLUMNS["_id"]
MUSIQUE = {
    "id": "2hop__1_2",
    "question": "When was the capital of Aland founded?",
    "answer": "12 May 1410",
    "answer_aliases": ["May 1410"],
    "answerable": True,
    "question_decomposition": [{"paragraph_support_idx": 1}, {"paragraph_support_idx": 0}],
    "paragraphs": [
        {"idx": 0, "title": "Ravos", "paragraph_text": "Founded on 12 May 1410.", "is_supporting": True},
        {"idx": 1, "title": "Aland", "paragraph_text": "Its capital is Ravos.", "is_supporting": True},
        {"idx": 2, "title": "Aland", "paragraph_text": "A film of that name.", "is_supporting": False},
    ],
}
SEARCH_R1 = {
    "id": "test_0",
    "question": "where is ravos",
    "golden_answers": ["Aland", "the country of Aland"],
    "reward_model": {"ground_truth": {"target": ["Aland"]}, "style": "rule"},
}
PASSAGES = [
    {"id": "0", "contents": '"Ravos"\nRavos is the capital of Aland.'},
    {"id": "1", "contents": '"Ravos"\nRavos is also a film.'},
]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path / "home"))


def terms(**more):
    return Terms(**{"name": "mine", "split": "eval", "licence": "CC0", "allowed_uses": ("evaluation",)} | more)


@pytest.fixture
def file(tmp_path):
    def write(*rows, suffix=".jsonl"):
        path = tmp_path / f"rows{suffix}"
        if suffix == ".parquet":
            pq.write_table(pa.Table.from_pylist(list(rows)), path)
        elif suffix == ".json":
            path.write_text(json.dumps(rows))
        else:
            path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
        return path

    return write


def spec(problem):
    return json.loads(problem.spec)


async def both_gates(problem):
    return await gates(KIND, problem, ScriptedBackend())


@pytest.mark.parametrize(
    ("form", "row", "suffix"),
    [
        ("hotpotqa", HOTPOT, ".jsonl"),
        ("hotpotqa", HOTPOT, ".json"),
        ("hotpotqa", YES, ".jsonl"),
        ("hotpotqa", COLUMNS, ".parquet"),
        ("musique", MUSIQUE, ".jsonl"),
        ("musique", MUSIQUE, ".parquet"),
    ],
)
async def test_rows_with_passages_become_problems_over_a_corpus_of_their_own(file, form, row, suffix):
    (problem,) = problems(form, file(row, suffix=suffix), terms())
    assert problem.ungated and not problem.passed  # `lakeloop problems import` runs the gates
    assert (problem.split, problem.licence, problem.allowed_uses) == ("eval", "CC0", ["evaluation"])
    assert problem.prompt == row["question"] and problem.problem_id.startswith("search/mine/")
    assert spec(problem)["hops"] == 2 and len(spec(problem)["support"]) == 2
    assert (await both_gates(problem)).passed


def test_the_document_with_the_answer_is_read_last(file):
    (hotpot,) = problems("hotpotqa", file(HOTPOT), terms())
    (musique,) = problems("musique", file(MUSIQUE), terms(name="other"))
    assert spec(hotpot)["support"] == ["Alda", "Aland"]
    assert spec(musique)["support"] == ["Aland", "Ravos"] and spec(musique)["answer_type"] == "date"
    assert spec(musique)["accepted"] == ["12 May 1410", "May 1410"]


def test_texts_of_one_title_are_documents_of_their_own(file):
    (problem,) = problems("musique", file(MUSIQUE), terms())
    corpus = store.find("mine", spec(problem)["corpus"])
    assert [d.title for d in corpus.documents] == ["Ravos", "Aland", "Aland (2)"]


async def test_search_r1_rows_search_a_corpus_that_is_named_or_given_as_a_file(file, tmp_path):
    passages = tmp_path / "wiki.jsonl"
    passages.write_text("\n".join(json.dumps(row) for row in PASSAGES))
    rows = file(SEARCH_R1)
    (first,) = problems("search-r1", rows, terms(name="nq", corpus=str(passages)))
    (second,) = problems("search-r1", rows, terms(name="again", corpus="nq"))
    assert spec(first)["corpus"] == spec(second)["corpus"] and spec(second)["corpus_name"] == "nq"
    assert spec(first)["accepted"] == ["Aland", "the country of Aland"]
    assert (await both_gates(first)).passed and (await both_gates(second)).passed
    with pytest.raises(store.NoSuchCorpus, match=r"countries, debian, nq"):
        problems("search-r1", rows, terms(name="third", corpus="wiki"))


BAD = [
    ("not json", "not JSON"),
    ("[1]", "not an object"),
    ({}, "the row has no 'context'"),
    (HOTPOT | {"question": " "}, "'question' is not a text"),
    (HOTPOT | {"answer": 3}, "'answer' is not a text"),
    (HOTPOT | {"answer": "Ravos"}, "stands in none of its supporting documents"),
    (HOTPOT | {"supporting_facts": [["Bob", 0]]}, "names a document that is not in the context"),
    (HOTPOT | {"context": [["Alda"]]}, "not a row of this form"),
    (HOTPOT | {"context": 7}, "not a row of this form"),
    (HOTPOT, "an earlier row has the same id"),
]


def test_every_bad_row_is_told_by_number_and_the_good_ones_can_be_had_without_them(file, caplog):
    path = file(HOTPOT, *(row for row, _ in BAD), YES)
    with pytest.raises(BadRow) as refused:
        problems("hotpotqa", path, terms())
    told = str(refused.value).splitlines()
    assert f"{len(BAD)} rows" in told[0] and "--skip-bad" in told[0]
    for number, ((_, reason), line) in enumerate(zip(BAD, told[1:], strict=True), start=2):
        assert line.startswith(f"row {number}: ") and reason in line
    with caplog.at_level(logging.WARNING):
        found = problems("hotpotqa", path, terms(skip_bad=True))
    assert [p.prompt for p in found] == [HOTPOT["question"], YES["question"]]
    assert len(caplog.records) == len(BAD)


def test_musique_rows_that_cannot_be_answered_are_bad_rows(file):
    with pytest.raises(BadRow, match="not answerable"):
        problems("musique", file(MUSIQUE | {"answerable": False}), terms(skip_bad=True))


@pytest.mark.parametrize(
    ("form", "more", "told"),
    [
        ("hotpotqa", {"name": "debian"}, "shipped set"),
        ("hotpotqa", {"corpus": "debian"}, "carry their passages"),
        ("search-r1", {}, "need a corpus"),
    ],
)
def test_an_import_that_cannot_be_meant_is_refused(file, form, more, told):
    with pytest.raises(BadRow, match=told):
        problems(form, file(HOTPOT), terms(**more))


def test_an_empty_file_is_refused(file):
    with pytest.raises(BadRow, match="no rows"):
        problems("hotpotqa", file(), terms())


async def test_episodes_that_begin_at_once_share_one_corpus_in_memory(file):
    (problem,) = problems("hotpotqa", file(HOTPOT), terms(name="shared"))
    environments = await asyncio.gather(*(KIND.open(problem, ScriptedBackend()) for _ in range(16)))
    assert len({id(environment.world.corpus) for environment in environments}) == 1


async def test_a_problem_whose_corpus_is_elsewhere_says_what_to_do(file, tmp_path, monkeypatch):
    (problem,) = problems("hotpotqa", file(HOTPOT), terms())
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path / "another"))
    with pytest.raises(EnvironmentFailure, match="import the problems again"):
        await KIND.open(problem, ScriptedBackend())
