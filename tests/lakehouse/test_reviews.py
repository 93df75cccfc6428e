"""Human review: who is looked at, verdicts that outrank rubrics, and how far people and rubrics agree."""

import json

import pytest

from lakehouse.label import label
from lakehouse.query import query
from lakehouse.records import Evidence, Review, now
from lakehouse.results import success
from lakehouse.reviews import ReviewError, agreements, queue, review
from lakehouse.write import Writer

AT = "2026-01-01T00:00:00Z"


@pytest.fixture
def judged(lake, make):
    """Lands a group with these answers and labels it; the episodes' ids."""

    def judged(*matches, problem_id="p", run="r", **facts):
        batch = make.group(matches, problem_id, run=run)
        names = [one.episode_id for one in batch.episodes]
        for name, values in facts.items():
            for nth, (episode_id, value) in enumerate(values):
                batch.evidence.append(
                    Evidence(
                        episode_id=names[episode_id], attempt_id="a0", name=name, value=json.dumps(value),
                        producer=f"judge {nth}", created_at=AT,
                    )
                )  # fmt: skip
        batch.land(lake)
        label(lake, "search@2", max_unjudged=1)
        return names

    return judged


def holds(lake):
    rows = query("select episode_id, status, outcome, reward from judgements where rubric = 'search'", lake).rows()
    return {episode_id: tuple(rest) for episode_id, *rest in rows}


def test_a_verdict_outranks_the_rubric_and_the_newest_counts(lake, judged):
    one, two, three, four = judged(True, False, None, True)
    review(lake, one, 0.0, reviewer="ann", comment="copied")
    review(lake, two, 0.0, reviewer="ann")
    review(lake, three, 1.0, reviewer="ann")
    review(lake, four, None, reviewer="ann")
    assert holds(lake) == {
        one: ("scored", 0.0, 0.0),
        two: ("scored", 0.0, 0.0),
        three: ("scored", 1.0, 1.0),
        four: ("not_trainable", None, None),
    }
    review(lake, one, 1.0, reviewer="bob")
    assert holds(lake)[one] == ("scored", 1.0, 1.0)
    assert query("select count(*) from rewards", lake).row(0) == (4,)  # what rubrics said stays


def test_a_verdict_that_agrees_leaves_the_shaped_reward(lake, make):
    batch = make.group([None])
    own = {"episode_id": batch.episodes[0].episode_id, "attempt_id": "a0"}
    near = {"given": "Bank of the Andes", "match": False, "accepted": ["Bank of the Andes of Peru"]}
    batch.evidence = [make.evidence("answer", near, **own), make.evidence("retrieval", {"hit": True}, **own)]
    batch.land(lake)
    label(lake, "search@2")
    review(lake, own["episode_id"], 0.0, reviewer="ann")
    assert holds(lake)[own["episode_id"]] == ("scored", 0.0, 0.1)


def test_a_run_is_counted_by_verdicts(lake, judged):
    one, _ = judged(True, True)
    review(lake, one, 0.0, reviewer="ann")
    [found] = success(lake, "r")
    assert (found.n, found.solved) == (2, 1)


def test_groups_change_with_verdicts(lake, judged):
    one, *_ = judged(True, True, True)
    assert set(query("select reason from group_statistics", lake)["reason"]) == {"zero_variance_group"}
    review(lake, one, 0.0, reviewer="ann")
    rows = query("select group_scored, group_mean, reason from group_statistics", lake).rows()
    assert {(scored, round(mean, 4), reason) for scored, mean, reason in rows} == {(3, 0.6667, None)}


def test_nobody_makes_a_reward_of_a_failure(lake, make):
    """Two solved and two that the infrastructure ended: a verdict of 0 on one of these would give the others an advantage."""
    batch = make.group([True, True])
    batch += make.batch(sample=2, status="infra_error") + make.batch(sample=3, status="infra_error")
    batch.land(lake)
    label(lake, "search@2")
    failed = batch.episodes[2].episode_id
    with pytest.raises(ReviewError, match=f"{failed} ended as infra_error, which says nothing about the policy"):
        review(lake, failed, 0.0, reviewer="ann")
    review(lake, failed, None, reviewer="ann", comment="the disk was full")
    verdict = {"review_id": "rv-1", "episode_id": failed, "reviewer": "bob", "queue": "asked", "outcome": 0.0}
    Writer(lake).append("reviews", [Review(**verdict, comment=None, reviewed_at=now())])  # by who asks nobody
    assert holds(lake)[failed] == ("not_trainable", None, None)
    assert set(query("select reason from group_statistics", lake)["reason"]) == {"zero_variance_group", "not_trainable"}


def test_every_verdict_is_in_the_audit_without_its_comment(lake, judged):
    one, _ = judged(True, False)
    review(lake, one, 0.0, reviewer="ann", queue="random", comment="private thoughts")
    rows = query("select actor, object, detail from audit where action = 'review'", lake).rows()
    [(actor, what, detail)] = rows
    assert (actor, what) == ("ann", one)
    assert json.loads(detail)["queue"] == "random" and "private" not in detail


def test_a_comment_is_kept_without_what_is_private(lake, judged):
    one, _ = judged(True, False)
    review(lake, one, 0.0, reviewer="ann", comment="ask jane.doe@example.com about it")
    [(comment,)] = query("select comment from reviews", lake).rows()
    assert comment.startswith("ask <redacted:") and "jane" not in comment


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"episode_id": "ep-nope"}, "no episode 'ep-nope'"),
        ({"outcome": 2.0}, "between 0"),
        ({"outcome": float("nan")}, "between 0"),
        ({"queue": "lucky"}, "no queue 'lucky'; there are disagreement"),
        ({"reviewer": " "}, "needs a reviewer"),
    ],
)
def test_a_verdict_that_cannot_be_is_refused(lake, judged, change, why):
    one, _ = judged(True, False)
    asked = {"episode_id": one, "outcome": 1.0, "reviewer": "ann", "queue": "asked"} | change
    with pytest.raises(ReviewError, match=why):
        review(lake, asked.pop("episode_id"), asked.pop("outcome"), **asked)
    assert query("from reviews", lake).is_empty()


def waiting(lake, rule=None, **how):
    return {row.episode_id: row.why for row in queue(lake, rule, **how)}


def test_two_rubrics_that_differ_bring_an_episode_up(lake, judged):
    scored = {"status": "scored"}
    one, two, _ = judged(True, True, False, judge=[(0, scored | {"score": 0.2}), (1, scored | {"score": 0.9})])
    label(lake, "judge@1", max_unjudged=1)
    assert waiting(lake, "disagreement") == {one: "rubrics: judge@1 says 0.0, search@2 says 1.0"}
    assert two not in waiting(lake, "disagreement")


def test_judges_gradings_and_reviewers_that_differ_bring_an_episode_up(lake, judged):
    scored = {"status": "scored"}
    one, two, three = judged(
        True, True, True,
        judge=[(0, scored | {"score": 0.25}), (0, scored | {"score": 0.75}), (1, scored | {"score": 1}), (1, {})],
        tests=[(1, {"again": {"same": False}})],
    )  # fmt: skip
    review(lake, three, 1.0, reviewer="ann")
    assert waiting(lake, "disagreement") == {
        one: "judges: judge: scores from 0.25 to 0.75",
        two: "gradings: tests: a second run said otherwise",
    }
    review(lake, three, None, reviewer="bob")
    assert waiting(lake, "disagreement")[three] == "reviewers: ann says 1.0, bob says unclear"
    review(lake, three, 1.0, reviewer="bob")
    assert three not in waiting(lake, "disagreement")


def test_a_success_that_training_would_make_more_of_comes_up(lake, judged):
    one, *_ = judged(True, False, False, False)
    judged(True, True, problem_id="q")
    found = waiting(lake, "high_advantage")
    assert list(found) == [one] and "its group has 0.25 on average" in found[one]


def test_what_the_radar_sees_comes_up(lake, make):
    batch = make.batch(problem_kind="swe", match=None)
    own = {"episode_id": batch.episodes[0].episode_id, "attempt_id": "a0"}
    batch.evidence = [make.evidence("scan", {"counts": {"runner": 1}, "findings": []}, **own)]
    batch.land(lake)
    seen = query("select episode_id from radar group by all having max(weight) >= 0.5", lake)["episode_id"].to_list()
    assert seen, "the radar sees a patch that refers to the test runner"
    assert list(waiting(lake, "detector")) == seen


def test_the_random_sample_is_the_same_for_everybody_and_has_what_was_scored(lake, judged):
    judged(True, False, None)
    first = waiting(lake, "random")
    assert len(first) == 2 and list(waiting(lake, "random", limit=1)) == list(first)[:1]


def test_what_was_reviewed_waits_no_more_unless_a_second_person_asks(lake, judged):
    one, two = judged(True, False)
    review(lake, one, 1.0, reviewer="ann")
    assert set(waiting(lake, "random")) == {two}
    assert set(waiting(lake, "random", reviewer="ann")) == {two}
    assert set(waiting(lake, "random", reviewer="bob")) == {one, two}


def test_all_queues_in_turn_give_each_episode_once(lake, judged):
    judged(True, False, False, False)
    judged(True, True, problem_id="q")
    rows = queue(lake)
    assert [row.queue for row in rows][:2] == ["high_advantage", "random"]
    assert len({row.episode_id for row in rows}) == len(rows) == 6


def test_a_selection_that_is_no_condition_is_refused(lake, judged):
    judged(True, False)
    assert waiting(lake, where="problem_id = 'q'") == {}
    with pytest.raises(ReviewError, match="nope"):
        queue(lake, where="nope = 1")


def test_agreement_is_raw_and_beyond_chance(lake, judged):
    names = judged(*[True] * 6, *[False] * 4)
    for name in names[:5]:
        review(lake, name, 1.0, reviewer="ann", queue="random")
    for name in names[5:9]:
        review(lake, name, 0.0, reviewer="ann", queue="random")
    review(lake, names[9], None, reviewer="ann")
    review(lake, names[0], 1.0, reviewer="bob")
    review(lake, names[8], 1.0, reviewer="bob")
    found = {(row.reviewer, row.second): row for row in agreements(lake)}
    ann = found["ann", "search@2"]
    # 5 both solved, 3 both not, 1 solved by the rubric alone: chance = 5/9 * 6/9 + 4/9 * 3/9 = 42/81
    assert (ann.n, ann.agreed) == (9, 8)
    assert ann.kappa == pytest.approx((8 / 9 - 42 / 81) / (1 - 42 / 81))
    assert (ann.reviewer_solved, ann.second_solved) == (pytest.approx(5 / 9), pytest.approx(6 / 9))
    both = found["ann", "bob"]
    assert (both.kind, both.n, both.agreed, both.kappa) == ("reviewer", 2, 1, 0.0)
    assert agreements(lake, queue="random")[0].n == 9 and agreements(lake, queue="detector") == []


def test_there_is_no_kappa_where_chance_explains_everything(lake, judged):
    one, two = judged(True, True)
    for name in (one, two):
        review(lake, name, 1.0, reviewer="ann")
    [row] = agreements(lake)
    assert (row.agreement, row.kappa) == (1.0, None)


def test_there_is_no_agreement_about_nothing(lake):
    assert agreements(lake) == [] and queue(lake) == []
    with pytest.raises(ReviewError, match="no queue"):
        agreements(lake, queue="nope")
