import math

import pytest
from deltalake import DeltaTable
from pydantic import ValidationError

from lakehouse.label import label
from lakehouse.query import query
from lakehouse.selection.filters import UnknownFilter
from lakehouse.selection.ledger import Ledger, LedgerGap
from lakehouse.selection.rows import BrokenCallTree
from lakehouse.selection.select import NothingTrainable, Selection, select
from lakehouse.write import Writer

GRPO = Selection(objective="grpo", rubrics=["search@2"], filter="grpo", policy_version=1)
SFT = Selection(objective="sft", rubrics=["search@2"], filter="sft")


@pytest.fixture
def labelled(lake, make):
    """Land a batch and label it; the lake."""

    def land(batch, *problems):
        Writer(lake).append("problems", list(problems) or [make.problem()])
        batch.land(lake)
        label(lake, "search@2")
        return lake

    return land


def rows(lake):
    return query("select * from training_rows order by row_index", lake).to_dicts()


def test_a_single_call_becomes_one_row(labelled, make):
    lake = labelled(make.group([True, False]))
    made = select(lake, GRPO)
    assert (made.rows, made.episodes, made.tokens, made.reasons) == (2, 2, 4, {})
    row = rows(lake)[0]
    assert row["input_ids"] == [1, 2, 3, 4, 5]
    assert row["loss_mask"] == [0, 0, 0, 1, 1]
    assert row["logprobs"] == [0, 0, 0, -0.5, -0.5]
    assert row["weight_versions"] == [-1, -1, -1, 1, 1]


def test_a_chain_of_calls_is_one_row_with_observations_masked(labelled, make):
    chain = [
        make.call([1, 2], [3], index=0),
        make.call([1, 2, 3, 9, 9], [4, 5], index=1, parent_call_id="c0", version=2, logprobs=[-0.1, -0.2]),
    ]
    lake = labelled(make.batch(sample=0, calls=chain) + make.batch(sample=1, match=False))
    Writer(lake).append("model_versions", [make.version(2, 1)])
    made = select(lake, GRPO.model_copy(update={"policy_version": 2}))
    row = rows(lake)[0]
    assert made.rows == 2
    assert row["input_ids"] == [1, 2, 3, 9, 9, 4, 5]
    assert row["loss_mask"] == [0, 0, 1, 0, 0, 1, 1]
    assert row["weight_versions"] == [-1, -1, 1, -1, -1, 2, 2]
    assert row["logprobs"] == pytest.approx([0, 0, -0.5, 0, 0, -0.1, -0.2])


def test_shared_ancestors_are_trained_once(labelled, make):
    tree = [
        make.call([1], [2, 3], index=0),
        make.call([1, 2, 3, 7], [4], index=1, parent_call_id="c0"),
        make.call([1, 2, 3, 8], [5], index=2, parent_call_id="c0"),
    ]
    lake = labelled(make.batch(sample=0, calls=tree) + make.batch(sample=1, match=False))
    made = select(lake, GRPO)
    first, second = rows(lake)[:2]
    assert (first["input_ids"], first["loss_mask"]) == ([1, 2, 3, 7, 4], [0, 1, 1, 0, 1])
    assert (second["input_ids"], second["loss_mask"]) == ([1, 2, 3, 8, 5], [0, 0, 0, 0, 1])
    assert second["logprobs"] == pytest.approx([0, 0, 0, 0, -0.5])
    assert made.ledger == Ledger(sampled=6, trained=6, masked={}, dropped={})


def test_ancestors_are_trained_in_the_second_leaf_where_the_first_is_too_long(labelled, make):
    tree = [
        make.call([1], [2, 3], index=0),
        make.call([1, 2, 3, *range(50)], [4], index=1, parent_call_id="c0"),
        make.call([1, 2, 3, 8], [5], index=2, parent_call_id="c0"),
    ]
    lake = labelled(make.batch(sample=0, calls=tree) + make.batch(sample=1, match=False))
    made = select(lake, GRPO.model_copy(update={"max_tokens_per_row": 20}))
    assert [row["loss_mask"] for row in rows(lake)] == [[0, 1, 1, 0, 1], [0, 0, 0, 1, 1]]
    assert made.ledger.dropped == {"too_long": 1}
    assert made.reasons == {"too_long": 1}


def test_a_forked_conversation_gives_a_row_per_root(labelled, make):
    forest = [make.call([1], [2], index=0), make.call([7], [8], index=1, segment=1, fork_reason="compaction")]
    lake = labelled(make.batch(sample=0, calls=forest) + make.batch(sample=1, match=False))
    select(lake, GRPO)
    assert [row["input_ids"] for row in rows(lake)] == [[1, 2], [7, 8], [1, 2, 3, 4, 5]]


def test_a_cancelled_call_is_masked_with_its_reason(labelled, make):
    calls = [make.call([1], [2, 3], index=0), make.call([1, 9], [4], index=1, status="cancelled")]
    lake = labelled(make.batch(sample=0, calls=calls) + make.batch(sample=1, match=False))
    made = select(lake, GRPO)
    assert made.rows == 2
    assert made.ledger == Ledger(sampled=5, trained=4, masked={"call_status": 1}, dropped={})


def test_a_child_that_does_not_begin_with_its_parent_is_refused(labelled, make):
    chain = [make.call([1, 2], [3], index=0), make.call([1, 2, 99, 9], [4], index=1, parent_call_id="c0")]
    lake = labelled(make.batch(sample=0, calls=chain) + make.batch(sample=1, match=False))
    with pytest.raises(BrokenCallTree, match="call 'c0'"):
        select(lake, GRPO)


def test_a_parent_that_does_not_exist_is_refused(labelled, make):
    lake = labelled(
        make.batch(sample=0, calls=[make.call([1], [2], parent_call_id="gone")]) + make.batch(sample=1, match=False)
    )
    with pytest.raises(BrokenCallTree, match="names parent 'gone'"):
        select(lake, GRPO)


def test_advantages_are_normalised_over_the_scored_episodes_of_the_whole_group(labelled, make):
    """An unscored episode shifts no mean; a stale one is not trained and still belongs to the baseline."""
    stale = make.batch(sample=3, match=False)  # of version 1, three steps before
    fresh = make.group([True, False, None], calls=[make.call([1, 2, 3], [4, 5], version=5)])
    lake = labelled(fresh + stale)
    Writer(lake).append("model_versions", [make.version(1), make.version(3, 1), make.version(4, 3), make.version(5, 4)])
    select(lake, GRPO.model_copy(update={"policy_version": 5}))
    mean = 1 / 3
    std = math.sqrt(((1 - mean) ** 2 + 2 * mean**2) / 2)
    assert [row["advantage"] for row in rows(lake)] == pytest.approx([(1 - mean) / (std + 1e-4), -mean / (std + 1e-4)])


def test_advantages_never_cross_groups(labelled, make):
    lake = labelled(make.group([True, False], "p") + make.group([True, False], "q"), make.problem(), make.problem("q"))
    select(lake, GRPO)
    by_group = query("select group_id, sum(advantage) as total from training_rows group by 1", lake)
    assert by_group["total"].to_list() == pytest.approx([0, 0])


def test_demonstrations_become_rows_without_behaviour_logprobs(labelled, make):
    call = make.call([1], [2, 3], logprobs=None, weight_versions=[-1, -1], token_route="demonstration")
    lake = labelled(make.batch(calls=[call], mode="demonstration", model_version=None, purpose="demonstration"))
    made = select(lake, SFT)
    (row,) = rows(lake)
    assert (made.rows, made.tokens) == (1, 2)
    assert (row["loss_mask"], row["logprobs"], row["weight_versions"]) == ([0, 1, 1], [0, 0, 0], [-1, -1, -1])
    assert (row["advantage"], row["reward"]) == (1, 1)


def test_building_twice_gives_the_same_set_and_writes_it_once(labelled, make):
    lake = labelled(make.group([True, False, True]))
    first = select(lake, GRPO)
    again = select(lake, GRPO)
    assert again == first
    assert len(rows(lake)) == 3
    assert query("select count(*) as n, count(distinct digest) as d from training_sets", lake).row(0) == (1, 1)


def test_the_digest_follows_the_data_and_not_how_it_landed(tmp_path, make):
    made = []
    for name, samples in (("x", (0, 1)), ("y", (1, 0))):
        lake = str(tmp_path / name)
        Writer(lake).append("problems", [make.problem()])
        for sample in samples:
            make.batch(sample=sample, match=sample == 0).land(lake)
        label(lake, "search@2")
        made.append(select(lake, GRPO).training_set_id)
    assert made[0] == made[1]


def test_another_reward_makes_another_set(labelled, make):
    lake = labelled(make.group([True, False]))
    first = select(lake, GRPO)
    make.batch(sample=2).land(lake)
    label(lake, "search@2")
    assert select(lake, GRPO).training_set_id != first.training_set_id


def test_a_set_names_the_delta_versions_it_read(labelled, make):
    lake = labelled(make.group([True, False]))
    Writer(lake).append("model_versions", [make.version(1)])
    made = select(lake, GRPO)
    record = query(f"from training_sets where training_set_id = '{made.training_set_id}'", lake).to_dicts()[0]
    assert record["table_versions"] == '{"calls":1,"episodes":1,"model_versions":1,"problems":1,"rewards":1}'


def test_runs_outside_the_selection_stay_out(labelled, make):
    lake = labelled(make.group([True, False]) + make.group([True, False], run="other"))
    made = select(lake, GRPO.model_copy(update={"run_ids": ["r"]}))
    assert (made.episodes, made.ledger.sampled) == (2, 4)


def test_the_ledger_closes_over_trained_masked_and_dropped(labelled, make):
    calls = [make.call([1], [2, 3], index=0), make.call([1, 9], [4], index=1, status="cancelled")]
    others = make.batch(sample=1, match=None) + make.batch(sample=2, match=False)
    lake = labelled(make.batch(sample=0, calls=calls) + others)
    ledger = select(lake, GRPO).ledger
    assert ledger == Ledger(sampled=7, trained=4, masked={"call_status": 1}, dropped={"no_evidence": 2})
    assert query("from checks.token_ledger", lake).is_empty()


def test_a_call_that_vanished_from_the_lake_is_a_gap_and_raises(labelled, make):
    chain = [make.call([1], [2], index=0), make.call([1, 2], [4, 5], index=1, parent_call_id="c0")]
    lake = labelled(make.batch(sample=0, calls=chain) + make.batch(sample=1, match=False))
    DeltaTable(f"{lake}/calls").delete("call_index = 1")
    with pytest.raises(LedgerGap, match="gap of 2"):
        select(lake, GRPO)
    assert query("select n_calls, calls from checks.recorded_tokens", lake).row(0) == (2, 1)


def test_a_ledger_that_does_not_close_names_its_numbers():
    with pytest.raises(LedgerGap, match="gap of 1: sampled 10, trained 6"):
        Ledger(sampled=10, trained=6, masked={"call_status": 1}, dropped={"stale": 2}).closed()


def test_nothing_trainable_says_why_per_reason(labelled, make):
    lake = labelled(make.group([True, True, None]))
    with pytest.raises(NothingTrainable, match="1 no_evidence, 2 zero_variance_group") as refused:
        select(lake, GRPO)
    assert refused.value.reasons == {"no_evidence": 1, "zero_variance_group": 2}


def test_another_models_episodes_are_left_out_for_that_reason(labelled, make):
    lake = labelled(make.group([True, False]))
    assert select(lake, GRPO.model_copy(update={"model_name": "toy"})).episodes == 2
    with pytest.raises(NothingTrainable, match="2 other_model"):
        select(lake, GRPO.model_copy(update={"model_name": "it's another"}))


def test_an_empty_lake_has_nothing_trainable(lake):
    with pytest.raises(NothingTrainable, match="no episode in these runs"):
        select(lake, GRPO)


def test_unknown_filters_and_settings_are_refused(lake):
    for name in ("nope", "eligible", "x'; drop"):  # `eligible` is there, but only as a step of others
        with pytest.raises(UnknownFilter, match=r"there are .*grpo.*sft"):
            select(lake, GRPO.model_copy(update={"filter": name}))
    with pytest.raises(ValidationError):
        Selection(objective="sft", rubrics=["search@2"], filter="sft", max_stale=1)
