"""Reviews on the command line."""

import json

import pytest

from lakehouse.label import label
from lakehouse.rubrics import asked
from lakehouse.rubrics.examples import read, tables
from lakehouse.write import Writer


@pytest.fixture
def episodes(lakeloop, monkeypatch):
    """A lake with the examples of a rubric as its episodes, labelled; one that it calls solved."""
    rubric = asked("search@2").rubric
    for table, rows in tables(rubric, read(rubric)).items():
        Writer().append(table, rows)
    label(None, "search@2")
    return "ep-0-0"


def test_from_the_queue_to_a_verdict_to_the_statistics(lakeloop, episodes):
    ended = lakeloop("review", "queue", "--json")
    rows = json.loads(ended.out)
    assert ended.status == 0 and episodes in {row["episode_id"] for row in rows}
    assert "random" in lakeloop("review", "queue", "--rule", "random", "--limit", "1").said
    assert "nothing waits" in lakeloop("review", "queue", "--kind", "swe").said
    ended = lakeloop(
        "review", "set", episodes, "failed", "--reviewer", "a[b]", "--queue", "random", "--comment", "copied"
    )
    assert ended.status == 0 and "a[b] says of ep-0-0: 0" in ended.said
    assert json.loads(lakeloop("review", "set", episodes, "0.25", "--reviewer", "c", "--json").out)["outcome"] == 0.25
    assert "unclear, and out of training" in lakeloop("review", "set", "ep-1-0", "unclear").said
    [row] = [
        row
        for row in json.loads(lakeloop("review", "stats", "--json").out)
        if row["reviewer"] == "a[b]" and row["kind"] == "rubric"
    ]
    assert (row["second"], row["n"], row["agreed"]) == ("search@2", 1, 0)
    assert "a[b]" in lakeloop("review", "stats").said
    assert episodes not in {
        row["episode_id"] for row in json.loads(lakeloop("review", "queue", "--rule", "random", "--json").out)
    }


def test_an_empty_lake_says_where_to_begin(lakeloop):
    assert "nothing waits for a review" in lakeloop("review", "queue").said
    assert "lakeloop review queue" in lakeloop("review", "stats").said


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["set", "ep-nope", "solved"], 1, "no episode 'ep-nope' has landed"),
        (["set", "ep-nope", "good"], 2, "'good' is none of solved, failed, unclear"),
        (["set", "ep-nope", "2"], 1, "between 0"),
        (["queue", "--rule", "lucky"], 2, "lucky"),
        (["queue", "--where", "nope = 1"], 1, "nope"),
        (["stats", "--queue", "lucky"], 1, "no queue 'lucky'"),
    ],
)
def test_what_is_wrong_is_said(lakeloop, arguments, status, said):
    ended = lakeloop("review", *arguments)
    assert ended.status == status
    assert said in ended.said and "Traceback" not in ended.said
