import json

import polars as pl
import pytest

from sandboxes.problems.base import ToolCall
from sandboxes.problems.foreign import BadRow, Terms
from sandboxes.problems.gates import gates
from sandboxes.problems.imports import read, terms
from sandboxes.problems.python import KIND

ROW = {
    "question": "Natalia sold clips to 48 of her friends in April, and half as many in May. How many altogether?",
    "answer": "In May she sold 48/2 = <<48/2=24>>24 clips.\nAltogether 48+24 = <<48+24=72>>72.\n#### 72",
}
TERMS = Terms(name="gsm8k", split="train", licence="MIT", allowed_uses=("training",))


@pytest.fixture
def rows(tmp_path):
    """What becomes of rows that are written to a file."""

    def write(*rows, suffix="jsonl"):
        path = tmp_path / f"rows.{suffix}"
        table = pl.DataFrame(rows, infer_schema_length=None)
        table.write_parquet(path) if suffix == "parquet" else path.write_text(
            "".join(json.dumps(r) + "\n" for r in rows)
        )
        return read("gsm8k", path, TERMS)

    return write


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_row_becomes_a_problem(rows, suffix):
    [problem] = rows(ROW, suffix=suffix)
    assert (problem.kind, problem.split, problem.source, problem.licence) == ("python", "train", "gsm8k", "MIT")
    assert problem.prompt == ROW["question"] and "72" not in problem.prompt
    assert KIND.expert(problem) == [
        ToolCall("python", {"code": "print(48/2)"}),
        ToolCall("python", {"code": "print(48+24)"}),
        ToolCall("answer", {"text": "72"}),
    ]


async def test_it_passes_the_gates_and_is_not_gated_before(rows, backend):
    [problem] = rows(ROW)
    assert problem.ungated and not problem.passed
    assert (await gates(KIND, problem, backend)).passed


@pytest.mark.parametrize(
    ("answer", "value"),
    [("#### 1,250", "1250"), ("so\n#### $3.50", "7/2"), ("#### -4", "-4"), ("a #### 1\n#### 2", "2")],
)
def test_what_follows_the_hashes_is_the_answer(rows, answer, value):
    [problem] = rows({"question": "q", "answer": answer})
    assert json.loads(problem.spec)["answer"] == value


def test_the_same_question_twice_is_one_problem(rows):
    assert len(rows(ROW, ROW)) == 1


@pytest.mark.parametrize(
    "row",
    [
        {"question": "q"},
        {"question": "q", "answer": "42"},
        {"question": "", "answer": "#### 1"},
        {"question": "q", "answer": "#### x"},
        {"question": 3, "answer": "#### 1"},
    ],
)
def test_a_row_that_is_no_problem_is_refused_by_number(rows, row):
    with pytest.raises(BadRow, match=r"row 0 of rows\.jsonl"):
        rows(row)


@pytest.mark.parametrize(
    ("form", "name", "told"),
    [
        ("gsm8k", "rows.csv", ".jsonl and .parquet"),
        ("gsm8k", "nowhere.jsonl", "no such file"),
        ("gsm8k", "broken.jsonl", "cannot be read"),
        ("gsm9k", "rows.jsonl", "gsm8k"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(tmp_path, form, name, told):
    (tmp_path / "broken.jsonl").write_text("{")
    with pytest.raises(BadRow, match=told):
        read(form, tmp_path / name, TERMS)


@pytest.mark.parametrize("wrong", [{"name": "a/b"}, {"licence": ""}, {"split": "test"}, {"more": 1}])
def test_terms_that_make_no_sense_are_refused(wrong):
    with pytest.raises(BadRow, match=next(iter(wrong))):
        terms(**TERMS.model_dump() | wrong)
