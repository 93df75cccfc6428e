"""Reading the lake from the command line."""

import json

import pytest

from lakehouse.schema import TABLES


def test_an_empty_lake_has_every_table_and_no_row(lakeloop):
    ended = lakeloop("tables", "--json")
    assert ended.status == 0
    assert {row["table"]: row["rows"] for row in json.loads(ended.out)} == dict.fromkeys(TABLES, 0)
    assert all(row["grain"] for row in json.loads(ended.out))


@pytest.mark.parametrize("table", TABLES)
def test_every_table_can_be_queried(lakeloop, table):
    ended = lakeloop("query", f"from {table}", "--json")
    assert (ended.status, json.loads(ended.out)) == (0, [])


def test_a_query_is_a_table_or_json(lakeloop):
    sql = "select 'ö' as name, 1.5 as x, [1, 2] as numbers, null as nothing, sum(i) as total from range(4) as t(i)"
    ended = lakeloop("query", sql)
    assert ended.status == 0
    assert "ö" in ended.out and "1.5" in ended.out and "[1, 2]" in ended.out
    ended = lakeloop("query", sql, "--json")
    assert json.loads(ended.out) == [{"name": "ö", "x": 1.5, "numbers": [1, 2], "nothing": None, "total": 6}]


def test_a_long_table_says_what_it_leaves_out(lakeloop):
    ended = lakeloop("query", "from range(7) as t(number)", "--rows", "3")
    assert [word for word in ended.out.split() if word.isdecimal()] == ["0", "1", "2", "4"]
    assert "4 more rows: --rows or --json shows them" in ended.said


def test_cells_and_errors_are_shown_as_they_are_not_as_markup(lakeloop):
    assert "[/red] [bold]x" in lakeloop("query", "select '[/red] [bold]x' as \"[/a]\"").out
    ended = lakeloop("query", "select '[/red]' frm x")
    assert ended.status == 1
    assert "'[/red]' frm x" in ended.said


@pytest.mark.parametrize(
    ("sql", "said"), [("selec 1", "syntax error"), ("from nowhere", "nowhere does not exist"), ("select 1/'x'", "x")]
)
def test_wrong_sql_is_one_message_and_status_1(lakeloop, sql, said):
    ended = lakeloop("query", sql)
    assert ended.status == 1
    assert ended.err.startswith("error: ") and said in ended.said
    assert "`lakeloop tables` lists what there is." in ended.said
    assert "Traceback" not in ended.err and not ended.out


def test_an_unknown_episode_is_named(lakeloop):
    ended = lakeloop("episodes", "show", "ep-1")
    assert (ended.status, ended.out) == (1, "")
    assert "no episode 'ep-1' has landed" in ended.said


def test_shipped_problems_load_once(lakeloop):
    assert "search: " in lakeloop("problems", "load", "search").out
    assert "search: 0 new problems or editions" in lakeloop("problems", "load", "search").out
    listed = json.loads(lakeloop("problems", "list", "--json").out)
    assert {row["split"] for row in listed} == {"train", "eval"}
    assert sum(row["problems"] for row in listed) == sum(row["gated"] for row in listed) >= 200
    ended = lakeloop("problems", "load", "chess")
    assert ended.status == 1 and "no kind of problem is called 'chess'" in ended.said


def test_a_row_count_that_is_none_is_a_usage_error(lakeloop):
    assert lakeloop("query", "select 1", "--rows", "0").status == 2


@pytest.mark.bubblewrap
def test_shipped_problems_can_be_put_through_their_gates_again(lakeloop, monkeypatch):
    assert "4 of 4 pass both gates" in lakeloop("problems", "check", "search", "--sample", "4").out
    monkeypatch.setattr("sandboxes.problems.search.kind.SearchKind.solved", lambda *_: True)
    ended = lakeloop("problems", "check", "search", "--sample", "2")
    assert ended.status == 1 and "0 of 2 pass both gates" in ended.out
