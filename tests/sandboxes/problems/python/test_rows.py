import json

import polars as pl
import pytest

from sandboxes.backends.scripted import ScriptedBackend, said
from sandboxes.problems.base import ToolCall
from sandboxes.problems.gates import gates
from sandboxes.problems.python import KIND, rows

ROW = {
    "question": "Natalia sold clips to 48 of her friends in April, and half as many in May. How many altogether?",
    "answer": "In May she sold 48/2 = <<48/2=24>>24 clips.\nAltogether 48+24 = <<48+24=72>>72.\n#### 72",
}
HOW = {"name": "gsm8k", "split": "train", "licence": "MIT", "allowed_uses": ["training"]}


async def test_a_row_becomes_a_problem_that_passes_the_gates():
    [problem] = rows.problems([ROW], **HOW)
    assert (problem.kind, problem.split, problem.source, problem.licence) == ("python", "train", "gsm8k", "MIT")
    assert problem.prompt == ROW["question"] and "72" not in problem.prompt
    assert KIND.expert(problem) == [
        ToolCall("python", {"code": "print(48/2)"}),
        ToolCall("python", {"code": "print(48+24)"}),
        ToolCall("answer", {"text": "72"}),
    ]

    def ran(argv, files):
        return said(b"72\n", stderr=b"")

    assert not (await gates(KIND, problem, ScriptedBackend(ran))).oracle_passed  # the box said nothing of an end


async def test_in_a_real_box_the_oracle_scores(backend):
    [problem] = rows.problems([ROW], **HOW)
    assert (await gates(KIND, problem, backend)).passed


@pytest.mark.parametrize(
    ("answer", "value"),
    [("#### 1,250", "1250"), ("so\n#### $3.50", "7/2"), ("#### -4", "-4"), ("a #### 1\n#### 2", "2")],
)
def test_what_follows_the_hashes_is_the_answer(answer, value):
    [problem] = rows.problems([{"question": "q", "answer": answer}], **HOW)
    assert json.loads(problem.spec)["answer"] == value


def test_the_same_question_twice_is_one_problem():
    assert len(rows.problems([ROW, ROW], **HOW)) == 1


@pytest.mark.parametrize(
    "row",
    [
        {"question": "q"},
        {"question": "q", "answer": "42"},
        {"question": "", "answer": "#### 1"},
        {"question": "q", "answer": "#### x"},
    ],
)
def test_a_row_that_is_no_problem_is_refused_by_number(row):
    with pytest.raises(rows.BadRow, match="row 1 of gsm8k"):
        rows.problems([ROW, row], **HOW)


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_rows_are_read_from_files(tmp_path, suffix):
    path, table = tmp_path / f"rows.{suffix}", pl.DataFrame([ROW])
    table.write_ndjson(path) if suffix == "jsonl" else table.write_parquet(path)
    assert rows.read(path) == [ROW]


def test_another_file_is_refused(tmp_path):
    with pytest.raises(rows.BadRow, match=r"\.jsonl and \.parquet"):
        rows.read(tmp_path / "rows.csv")
