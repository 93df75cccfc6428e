"""Lineage both ways, in Python and in SQL: what made a version, and what an episode reached."""

import pytest
from deltalake import DeltaTable

from lakehouse.lineage.terms import Terms, learnt_from, terms
from lakehouse.lineage.used import where_used
from lakehouse.lineage.versions import UnknownVersion
from lakehouse.lineage.why import why
from lakehouse.query import query
from lakehouse.records import GateDecision
from lakehouse.trajectory import UnknownEpisode
from lakehouse.write import Writer


def facts(found, aspect):
    return {
        fact.item: fact.value if fact.amount is None else fact.amount for fact in found.facts if fact.aspect == aspect
    }


def test_why_names_everything_that_made_a_version(line, make):
    line.train(2, make.group([True, False], run="a"))
    made = line.train(3, make.group([True, False, True], run="b", calls=[make.call([1], [2, 3], version=2)]))
    found = why(line.lake, "toy@3")
    assert (found.version.training_set_id, found.rows, found.trained_tokens) == (made.training_set_id, 3, 6)
    assert facts(found, "version")["commit"] == "commit3"
    assert facts(found, "selection")["credit"] == "outcome"
    assert list(facts(found, "filter")) == ["grpo"]
    assert facts(found, "rubric") == {"search": 3}
    assert facts(found, "data") == {"made up": 3}
    assert facts(found, "run") == {"b": 3}
    assert facts(found, "engine") == {"0": 3}
    assert facts(found, "weights") == {"2": 6}
    assert facts(found, "table")["episodes"] == "2"
    assert found.problems == {"p": 3}
    assert len(found.episodes) == 3
    assert [(one.version, one.distance, one.commit) for one in found.ancestors] == [
        (2, 1, "commit2"),
        (1, 2, "commit1"),
    ]
    assert found.ledger.sampled == found.ledger.trained == 6
    assert query("select count(*) from provenance where name = 'toy' and version = 3", line.lake).item() == len(
        found.facts
    )


def test_why_tells_what_the_gate_decided_of_the_version_the_newest_first(line, make):
    line.train(2, make.group([True, False], run="a"))
    for hour, candidate in enumerate([2, 2, 1]):
        decided = GateDecision(
            gate_id=f"gt-{hour}", name="toy", candidate=candidate, champion=1, policy_digest="d", policy="", measurements="{}",
            passed=hour == 1, reasons=[] if hour == 1 else ["is worse"], decided_by="alice",
            decided_at=make.problem().created_at.replace(hour=hour),
        )  # fmt: skip
        Writer(line.lake).append("gates", [decided])
    assert [(one.gate_id, one.passed, one.reasons) for one in why(line.lake, "toy@2").gates] == [
        ("gt-1", True, []),
        ("gt-0", False, ["is worse"]),
    ]


def test_a_set_selected_once_more_from_what_it_pinned_is_the_same_also_after_compaction(line, make):
    made = line.train(2, make.group([True, False], run="a") + make.group([True, False], "q", run="a"))
    make.group([True, False], run="a", attempt="late").land(line.lake)  # a no-op
    make.group([True, False, True], run="other").land(line.lake)
    Writer(line.lake).compact()
    assert why(line.lake, "toy@2", verify=True).same is True
    again = line.train(3, make.group([True, False], run="c"), run_ids=["a"], policy_version=1)
    assert again.training_set_id == made.training_set_id  # from the compacted tables


def test_a_set_whose_pinned_data_was_changed_is_not_the_same(line, make):
    line.train(2, make.group([True, False], run="a"))
    DeltaTable(f"{line.lake}/training_sets").update(updates={"digest": "'another'"})
    assert why(line.lake, "toy@2", verify=True).same is False


def test_a_version_from_elsewhere_has_no_facts_but_its_own(line):
    found = why(line.lake, "toy@1", verify=True)
    assert (found.rows, found.episodes, found.ledger, found.same) == (0, [], None, None)
    with pytest.raises(UnknownVersion, match="toy@1 to toy@1"):
        why(line.lake, "toy@9")
    with pytest.raises(UnknownVersion, match="written NAME@NUMBER"):
        why(line.lake, "toy")


def test_an_episode_reaches_what_was_trained_on_it_and_what_comes_from_that(line, make):
    batch = make.group([True, False], run="a") + make.batch(sample=7, run="a", match=None)
    made = line.train(2, batch)
    line.train(3, make.group([True, False], run="b", calls=[make.call([1], [2, 3], version=2)]))
    (use,) = where_used(line.lake, batch.episodes[0].episode_id)
    assert (use.training_set_id, use.rows, use.trained_tokens) == (made.training_set_id, 1, 2)
    assert [(one.version, one.distance) for one in use.versions] == [(2, 0), (3, 1)]
    assert where_used(line.lake, batch.episodes[2].episode_id) == []  # never judged, so never trained
    with pytest.raises(UnknownEpisode):
        where_used(line.lake, "ep-nobody")
    reached = query("select version, distance, count(*) as n from where_used group by all order by all", line.lake)
    assert reached.rows() == [(2, 0, 2), (3, 0, 2), (3, 1, 2)]


def test_a_set_without_a_version_is_a_use_as_well(line, make):
    batch = make.group([True, False], run="a")
    line.train(2, batch)
    line.train(3, make.group([True, False], run="c"), run_ids=["a"], policy_version=1, max_tokens_per_row=999)
    DeltaTable(f"{line.lake}/model_versions").delete("version = 3")
    uses = where_used(line.lake, batch.episodes[0].episode_id)
    assert [[one.version for one in use.versions] for use in uses] == [[2], []]


def test_a_version_takes_over_the_licences_and_keeps_the_uses_of_all_before_it(line, make):
    one = line.train(2, make.group([True, False], run="a"))
    first = terms(line.lake, "toy", parent=1, training_set_id=one.training_set_id)
    assert first == Terms(["CC0-1.0"], ["evaluation", "training"])
    line.register(4, one.training_set_id, licences=["GPL-3.0"], allowed_uses=["training"])
    assert terms(line.lake, "toy", parent=4, training_set_id=one.training_set_id) == Terms(
        ["CC0-1.0", "GPL-3.0"], ["training"]
    )
    assert terms(line.lake, "toy", parent=None, training_set_id=None) == Terms(None, None)


def test_what_a_teacher_learnt_from_reaches_the_version_it_taught_also_of_another_name(line, make):
    batch = make.group([True, False], run="a")
    made = line.train(2, batch)
    line.register(3, None, name="other", parent_version=None, learnt_from=["toy@2"], weights_digest="taught")
    line.register(4, None, parent_version=1, learnt_from=["toy@1", "other@3"])
    (use,) = where_used(line.lake, batch.episodes[0].episode_id)
    assert [(one.name, one.version, one.distance) for one in use.versions] == [
        ("other", 3, 1),
        ("toy", 2, 0),
        ("toy", 4, 2),
    ]
    assert made.training_set_id == use.training_set_id
    (told,) = [fact.value for fact in why(line.lake, "toy@4").facts if fact.item == "learnt_from"]
    assert told == "toy@1, other@3"
    assert learnt_from(line.lake, ["taught", "elsewhere"]) == ["other@3"]


def test_a_version_takes_over_the_terms_of_its_teacher(line, make):
    one = line.train(2, make.group([True, False], run="a"))
    line.register(4, None, name="teacher", licences=["GPL-3.0"], allowed_uses=["evaluation"])
    found = terms(line.lake, "toy", parent=1, training_set_id=one.training_set_id, others=["teacher@4"])
    assert found == Terms(["CC0-1.0", "GPL-3.0"], ["evaluation"])
