"""sampled = trained + masked(reason) + dropped(reason): of a set, of each run and model in it, and per token replaced."""

import pytest
from deltalake import DeltaTable

from lakehouse.query import query
from lakehouse.selection.ledger import Ledger, LedgerGap, Part
from lakehouse.selection.select import Selection, select

GRPO = Selection(objective="grpo", rubrics=["search@2"], filter="grpo", policy_version=1)


def test_replaced_tokens_are_masked_for_that_reason(landed, make):
    calls = [
        make.call([1], [2, 3, 4], index=0, redacted=[0, 1, 0]),
        make.call([1, 2, 3, 4], [5], index=1, parent_call_id="c0", redacted=[1]),
    ]
    lake = landed(make.batch(sample=0, calls=calls) + make.batch(sample=1, match=False))
    made = select(lake, GRPO)
    row = query("from training_rows order by row_index limit 1", lake).to_dicts()[0]
    assert row["loss_mask"] == [0, 1, 0, 1, 0]
    assert row["logprobs"] == [0, -0.5, 0, -0.5, 0]
    assert made.ledger == Ledger(sampled=6, trained=4, masked={"redacted": 2}, dropped={})
    assert query("from checks.token_ledger", lake).is_empty()


def test_a_row_of_replaced_tokens_only_is_no_row(landed, make):
    gone = make.batch(sample=2, calls=[make.call([1], [2, 3], redacted=[1, 1])])
    made = select(landed(make.group([True, False]) + gone), GRPO)
    assert (made.rows, made.ledger.masked) == (2, {"redacted": 2})


def test_the_ledger_closes_for_every_run_and_model(landed, make):
    batch = make.group([True, False], run="a") + make.group([True, None], run="b", model_version=7, duration_s=2.5)
    lake = landed(batch)
    made = select(lake, GRPO)
    one, other = made.ledger.parts
    assert one == Part("a", "toy", 1, 2, 2.0, 6, 4, 4, {}, {})
    assert other == Part("b", "toy", 7, 2, 5.0, 6, 4, 0, {}, {"no_evidence": 2, "singleton_group": 2})
    shown = query("select run_id, model_version, fate, reason, tokens from token_ledger order by all", lake).rows()
    assert shown == [
        ("a", 1, "sampled", None, 4),
        ("a", 1, "trained", None, 4),
        ("b", 7, "dropped", "no_evidence", 2),
        ("b", 7, "dropped", "singleton_group", 2),
        ("b", 7, "sampled", None, 4),
        ("b", 7, "trained", None, 0),
    ]


def test_a_gap_of_one_run_that_another_one_hides_stops_as_well(landed, make):
    lost = [make.call([1], [2], index=0), make.call([1, 2], [4, 5], index=1, parent_call_id="c0")]
    lake = landed(make.batch(sample=0, calls=lost) + make.batch(sample=1, match=False))
    DeltaTable(f"{lake}/calls").delete("call_index = 1")
    with pytest.raises(LedgerGap, match="gap of 2"):
        select(lake, GRPO)
    short = Part("a", "toy", 1, 1, 1.0, 1, 3, 2, {}, {})
    long = Part("b", "toy", 1, 1, 1.0, 1, 3, 4, {}, {})
    with pytest.raises(LedgerGap, match="run a and toy version 1 has a gap of 1"):
        Ledger(sampled=6, trained=6, masked={}, dropped={}, parts=[short, long]).closed()


def test_what_a_trained_token_costs(landed, make):
    lake = landed(make.group([True, False], run="a") + make.group([True, None], run="b"))
    select(lake, GRPO)
    (cost,) = query("from training_costs", lake).to_dicts()
    assert cost["trained_tokens"] == 4
    assert (cost["episode_seconds"], cost["seconds_per_trained_token"]) == (4.0, 1.0)
    assert (cost["prompt_per_trained_token"], cost["sampled_per_trained_token"]) == (3.0, 2.0)
