"""Given/expect examples: the shipped rubrics keep theirs, and an example that does not hold says so."""

import re
from pathlib import Path

import pytest

from lakehouse.rubrics import RubricError, asked, check_examples, rubrics

SHIPPED = [one for one in rubrics() if one.shipped]


@pytest.mark.parametrize("rubric", SHIPPED, ids=lambda one: one.title)
def test_a_shipped_rubric_has_examples_and_keeps_them(rubric):
    found = check_examples(rubric)
    assert len(found) >= 4
    assert [(one.example, one.wrong) for one in found if one.wrong] == []


def test_what_does_not_hold_is_told_with_both_sides(own):
    own.paying("toy@1", "$low", header="-- parameter low: 0.25\n").with_suffix(".yaml").write_text(
        """
- {name: right, given: {}, expect: {reward: 0.25}}
- {name: wrong, given: {}, expect: {status: scored, reward: 1}}
- {name: other, given: {}, parameters: {low: 3}, expect: {reward: 3}}
- {name: none, given: {episode: {problem_kind: swe}}, expect: null}
- {name: some, given: {}, expect: null}
- {name: components, given: {}, expect: {components: {hit: true}}}
- {name: broken, given: {status: infra_error}, expect: {status: not_trainable}}
- {name: group, given: [{}, {episode: {problem_kind: swe}}], expect: [{outcome: 1}, null]}
"""
    )
    found = {one.example: one.wrong for one in check_examples(asked("toy@1").rubric)}
    assert [name for name, wrong in found.items() if wrong is None] == ["right", "other", "none", "group"]
    assert "'reward': 1.0" in found["wrong"] and "'reward': 0.25" in found["wrong"]
    assert "no row" in found["some"] and "hit" in found["components"] and "never scored" in found["broken"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[]", "at least 1"),
        ("- {name: a, given: {}, expect: {rewards: 1}}", "rewards"),
        ("- {name: a, given: {evidnce: {}}, expect: null}", "evidnce"),
        ("- {name: a, given: {episode: {nope: 1}}, expect: null}", "nope"),
        ("- {name: a, given: [{}, {}], expect: [null]}", "one judgement per given"),
        ("- {name: a, given: {}, expect: null}\n- {name: a, given: {}, expect: null}", "two examples"),
        ("- {name: a", "flow mapping"),
    ],
)
def test_a_file_of_examples_that_is_wrong_is_refused(own, text, why):
    path = own.paying("toy@1", "1").with_suffix(".yaml")
    path.write_text(text)
    with pytest.raises(RubricError, match=why) as error:
        check_examples(asked("toy@1").rubric)
    assert str(path) in str(error.value)


def test_a_rubric_without_examples_has_none(own):
    own.paying("toy@1", "1")
    assert check_examples(asked("toy@1").rubric) == []


def test_the_rubric_in_the_documentation_keeps_its_examples(own):
    page = (Path(__file__).parents[3] / "docs" / "rubrics.md").read_text()
    [sql] = re.findall(r"```sql\n(-- name: .+?)```", page, re.S)
    [examples] = re.findall(r"```yaml\n(.+?)```", page, re.S)
    (own.folder / "concise@1.sql").write_text(sql)
    (own.folder / "concise@1.yaml").write_text(examples)
    assert [(one.example, one.wrong) for one in check_examples(asked("concise@1").rubric) if one.wrong] == []
