"""What a wrong rubric or a judge that failed comes to: a clear error, and nothing written."""

from datetime import UTC, datetime

import pytest

from lakehouse.label import CoverageError, Labelled, RubricError, label
from lakehouse.query import query
from lakehouse.rubrics.judging import SelectionError


@pytest.fixture(scope="module")
def landed(make, tmp_path_factory):
    """A lake with two search episodes, which no rubric that is refused changes."""
    lake = str(tmp_path_factory.mktemp("landed") / "lake")
    make.group([True, False]).land(lake)
    return lake


@pytest.fixture
def refused(own, landed, lake):
    """Labels with `toy@1` the landed episodes, or those of a batch; expects an error and no reward, and gives the message."""

    def refused(kind=RubricError, *, batch=None, **how):
        where = lake if batch else landed
        if batch:
            batch.land(lake)
        with pytest.raises(kind) as error:
            label(where, "toy@1", **how)
        assert query("from rewards", where).is_empty()
        return str(error.value)

    return refused


@pytest.mark.parametrize(
    ("outcome", "reward", "law"),
    [
        ("1", "1 / 0", "divi.*infinity or NaN"),
        ("1", "0 / 0", "infinity or NaN"),
        ("1", "1 // 0", "a scored episode has an outcome and a reward"),
        ("null", "1", "a scored episode has an outcome and a reward"),
        ("2", "1", "an outcome is between 0"),
        ("1", "nope", "nope"),
        ("1", "(select max(x) from nowhere)", "nowhere"),
        ("1", "'much'", "much"),
        ("1", "$more", "more"),
        ("1", "1 as bonus, 1", "has also bonus"),
        ("1", "(select 1 from read_csv('/etc/passwd'))", "read_csv"),
    ],
)
def test_a_rubric_that_gives_what_is_no_judgement_is_refused(own, refused, outcome, reward, law):
    import re

    path = own.paying("toy@1", reward, outcome=outcome)
    message = refused()
    assert re.search(law, message, re.S) and str(path) in message


@pytest.mark.parametrize(
    ("sql", "law"),
    [
        ("select episode_id, 'scored' as status, 1 as reward, '{}' as components from episodes", "lacks outcome"),
        (
            "select episode_id, 'scored' as status, 1 as outcome, 1 as reward, '{}' as components "
            "from episodes cross join range(2)",
            "one row per episode; it gives 2",
        ),
        (
            "select episode_id, 'fine' as status, 1 as outcome, 1 as reward, '{}' as components from episodes",
            "a status is scored",
        ),
        (
            "select episode_id, 'no_evidence' as status, null as outcome, 0 as reward, '{}' as components from episodes",
            "neither outcome nor reward",
        ),
        (
            "select episode_id, 'scored' as status, 1 as outcome, 1 as reward, '[]' as components from episodes",
            "JSON object",
        ),
        (
            "select episode_id, 'scored' as status, 1 as outcome, 1 as reward, '{}' as components "
            "from episodes where problem_kind = 'swe'",
            "it has no row for any of the 2 episodes",
        ),
        ("select 1; select 2", "one SELECT"),
        ("drop table episodes", "one SELECT"),
        ("selec 1", "syntax error"),
    ],
)
def test_a_rubric_that_is_no_rubric_is_refused(own, refused, sql, law):
    own.write("toy@1", sql)
    assert law in refused()


def test_a_rubric_cannot_score_an_episode_whose_infrastructure_failed(own, refused, make):
    own.paying("toy@1", "0", outcome="0")
    message = refused(batch=make.group([True]) + make.batch(sample=1, status="infra_error"))
    assert "never scored" in message


@pytest.mark.parametrize("where", ["nope = 1", "true) or (", "true; drop table episodes"])
def test_a_selection_that_is_no_condition_is_refused(own, refused, where):
    own.paying("toy@1", "1")
    assert "is not a condition" in refused(SelectionError, where=where)


def test_a_judge_that_failed_everywhere_fails_the_run_and_writes_nothing(refused, lake, make, own):
    own.write(
        "toy@1",
        "select episode_id, if(name is null, 'no_evidence', 'scored') as status, if(name is null, null, 1) as outcome, "
        "if(name is null, null, 1) as reward, '{}' as components "
        "from episodes left join (from evidence where name = 'answer') using (episode_id)",
    )
    message = refused(CoverageError, batch=make.group([None, None, None, True]))
    assert "3 of 4" in message and "75%" in message and "--max-unjudged" in message
    assert label(lake, "toy@1", max_unjudged=0.75) == Labelled(scored=1, no_evidence=3, not_trainable=0, written=4)


def test_a_rubric_may_say_how_many_it_leaves_out(own, lake, make):
    path = own.paying("toy@1", "1", header="-- unjudged: 0.7, some have nothing to say\n")
    path.write_text(path.read_text() + "and sample_index = 0")
    make.group([True] * 3).land(lake)
    assert label(lake, "toy@1").missing == 2
    with pytest.raises(CoverageError, match="50% are allowed"):
        label(lake, "toy@1", max_unjudged=0.5)


def test_episodes_without_a_row_count_as_unjudged(own, refused, lake, make):
    own.paying("toy@1", "1")
    path = own.folder / "toy@1.sql"
    path.write_text(path.read_text() + "and sample_index = 0")
    refused(CoverageError, batch=make.group([True] * 3))
    assert label(lake, "toy@1", max_unjudged=1).missing == 2


def test_failures_of_the_infrastructure_are_not_held_against_the_judge(lake, make):
    (make.group([True]) + make.group([None] * 3, problem_id="q", status="infra_error")).land(lake)
    assert label(lake, "search@2", max_unjudged=0) == Labelled(scored=1, no_evidence=0, not_trainable=3, written=4)


def test_a_judgement_says_its_parameters_and_others_are_another_judgement(own, lake, make):
    own.paying("toy@1", "$low", header="-- parameter low: 0.25, the least\n")
    make.group([True]).land(lake)
    assert label(lake, "toy@1").written == 1
    assert label(lake, "toy@1").written == 0
    assert label(lake, "toy@1:low=0.5").written == 1
    rows = query("select reward, parameters from rewards order by labelled_at", lake).rows()
    assert rows == [(0.25, '{"low":0.25}'), (0.5, '{"low":0.5}')]
    assert query("select reward from latest_rewards", lake).rows() == [(0.5,)]


def test_one_version_is_one_text(own, lake, make):
    own.paying("toy@1", "1")
    make.group([True]).land(lake)
    label(lake, "toy@1")
    own.paying("toy@1", "2")
    with pytest.raises(RubricError, match="call the new one toy@2"):
        label(lake, "toy@1")
    assert query("select reward from rewards", lake).rows() == [(1.0,)]


def test_a_newer_judgement_holds_whatever_the_clock_of_the_older_one(own, lake, make, monkeypatch):
    own.paying("toy@1", "$low", header="-- parameter low: 0.25\n")
    make.group([True]).land(lake)
    with monkeypatch.context() as patch:
        patch.setattr("lakehouse.label.now", lambda: datetime(2100, 1, 1, tzinfo=UTC))
        label(lake, "toy@1")
    assert label(lake, "toy@1:low=0.5").written == 1
    assert query("select reward from latest_rewards", lake).rows() == [(0.5,)]
    assert label(lake, "toy@1:low=0.5").written == 0


def test_labelling_is_in_the_audit(lake, make):
    make.group([True]).land(lake)
    label(lake, "search@2", where="run_id = 'r'")
    label(lake, "search@2", where="run_id = 'r'")
    rows = query("select action, object, detail ->> '$.where' from audit", lake).rows()
    assert rows == [("label", "search@2", "run_id = 'r'")]
