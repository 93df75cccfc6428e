"""Search problems in sets, and the forms of others that become search problems, as the command line has them."""

import json

ROW = {
    "_id": "r1",
    "question": "What was the capital of the country that Alda ruled?",
    "answer": "Tamsin",
    "supporting_facts": [["Alda", 0], ["Aland", 1]],
    "context": [["Alda", ["Alda ruled Aland."]], ["Aland", ["Aland is old.", " Its capital was Tamsin."]]],
}


def test_a_set_that_is_not_shipped_is_a_usage_error_that_names_those_that_are(lakeloop):
    ended = lakeloop("problems", "load", "search/debain")
    assert ended.status == 2 and "search/debian" in ended.said


def test_closed_book_needs_problems_to_ask(lakeloop):
    ended = lakeloop("problems", "closed-book", "search/nothing")
    assert ended.status == 2 and "is left to ask" in ended.said
    assert lakeloop("problems", "closed-book", "search", "--split", "test").status == 2


def test_rows_of_others_become_search_problems_and_bad_ones_are_told_by_line(lakeloop, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps(ROW) + "\n{\n")
    given = ("problems", "import", "hotpotqa", str(rows), "--name", "mine", "--licence", "CC0")
    ended = lakeloop(*given)
    assert ended.status == 1 and "row 2: not JSON" in ended.said
    ended = lakeloop(*given, "--skip-bad")
    assert "mine: 1 new problems" in ended.out and "1 of 1 pass both gates" in ended.out
    (listed,) = json.loads(lakeloop("problems", "list", "--json").out)
    assert (listed["kind"], listed["source"], listed["gated"]) == ("search", "rows.jsonl", 1)
