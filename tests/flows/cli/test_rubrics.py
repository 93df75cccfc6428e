"""Rubrics on the command line: what there is, whether it keeps its examples, what another would change."""

import json

import pytest

SEARCH = """-- name: {name}
-- version: {version}
-- kinds: search
-- grain: one row per search episode
-- inputs: episodes
-- parameter low: 0.25, the [least]
select episode_id, 'scored' as status, 1 as outcome, $low as reward, '{{}}' as components
from episodes
where problem_kind = 'search'
"""


@pytest.fixture
def own(tmp_path):
    (tmp_path / "rubrics").mkdir()
    for version in (1, 2):
        (tmp_path / "rubrics" / f"toy@{version}.sql").write_text(SEARCH.format(name="toy", version=version))
    return tmp_path / "rubrics"


def test_the_list_has_the_shipped_ones_and_those_in_the_home_folder(lakeloop, own):
    ended = lakeloop("rubric", "list", "--json")
    rows = {row["rubric"]: row for row in json.loads(ended.out)}
    assert {"swe@1", "swe@2", "search@2", "judge@1", "toy@1", "toy@2"} <= rows.keys()
    assert rows["toy@1"]["parameters"] == {"low": {"default": 0.25, "about": "the [least]"}}
    assert not rows["toy@1"]["shipped"] and rows["swe@2"]["examples"] > 3 and rows["swe@2"]["judged"] == 0
    assert "[least]" in lakeloop("rubric", "list").said


def test_examples_are_run_and_a_wrong_one_fails_the_command(lakeloop, own):
    assert lakeloop("rubric", "test", "toy@1").status == 1  # named, and it has none
    (own / "toy@1.yaml").write_text("- {name: right, given: {}, expect: {reward: 0.25}}")
    ended = lakeloop("rubric", "test", "toy@1")
    assert (ended.status, "1 of 1 examples hold" in ended.out) == (0, True)
    (own / "toy@1.yaml").write_text("- {name: wrong, given: {}, expect: {reward: 1}}")
    ended = lakeloop("rubric", "test", "toy@1", "--json")
    assert ended.status == 1
    assert json.loads(ended.out)["examples"][0]["wrong"].startswith("expected")


def test_a_difference_is_a_table_json_or_a_picture(lakeloop, own, tmp_path):
    ended = lakeloop("rubric", "diff", "toy@1", "toy@2:low=0.5", "--json")
    assert (ended.status, json.loads(ended.out)["episodes"]) == (0, 0)
    ended = lakeloop("rubric", "diff", "toy@1", "toy@2", "--picture", str(tmp_path / "diff.png"))
    assert ended.status == 0 and "no episode is in the selection" in ended.said
    assert (tmp_path / "diff.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["diff", "toy@1", "toy@9"], "no rubric 'toy@9'; there are"),
        (["diff", "toy@1", "toy@2:high=1"], "has no parameter 'high'; it has low"),
        (["diff", "toy@1", "toy@2", "--where", "nope = 1"], "is not a condition over the columns of `episodes`"),
        (["test", "nope@1"], "no rubric 'nope@1'"),
    ],
)
def test_what_is_wrong_is_said(lakeloop, own, arguments, said):
    ended = lakeloop("rubric", *arguments)
    assert ended.status == 1
    assert said in ended.said and "Traceback" not in ended.said
