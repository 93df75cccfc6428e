"""What the weight-sync proof makes of two scorings."""

import json

import pytest

from tasks.serving.deploy import probe
from tasks.serving.errors import ProbeError
from tasks.serving.proof import MAX_BOUND, Scored, prove
from tasks.training.folder import PROBE
from tasks.training.probe_set import ALWAYS, Heated, Probe, affordable, cut, read, spread

OLD = Scored([[-1.0, -2.0, -3.0], [-4.0]], [-0.5])
NEW = Scored([[-1.5, -2.5, -3.5], [-4.5]], [-0.8])


def shifted(scored, by, hotter=0.0):
    return Scored([[value + by for value in row] for row in scored.plain], [one + by + hotter for one in scored.heated])


def test_weights_that_agree_with_the_trainer_and_moved_are_proven():
    proof = prove(shifted(NEW, 1e-6), NEW, OLD, version=3)
    assert (proof.passed, proof.changed) == (True, True)
    assert (proof.version, proof.sequences, proof.tokens, proof.heated_tokens, proof.longest) == (3, 2, 5, 1, 4)
    assert proof.mean_difference == pytest.approx(1e-6, rel=1e-3)
    assert proof.mean_movement == pytest.approx(0.5, rel=1e-3)


def test_a_reload_that_changed_nothing_is_caught_against_the_trainer():
    proof = prove(OLD, NEW, OLD, version=3)
    assert not proof.passed
    assert "differ from the trainer's by 0.46" in proof.reason


def test_a_reload_that_changed_nothing_is_caught_even_when_training_moved_less_than_the_bound():
    proof = prove(OLD, shifted(OLD, 1e-4), OLD, version=3)
    assert not proof.passed
    assert "did not move" in proof.reason


@pytest.mark.parametrize(("served", "passed"), [(2.5e-3, True), (1e-3, True), (0.7e-3, False), (0.0, False)])
def test_an_engine_that_computes_a_little_differently_has_the_weights_that_it_is_nearer_to(served, passed):
    """Training moved by 1.5e-3: less than three times as far as the engine may be from the trainer."""
    proof = prove(shifted(OLD, served), shifted(OLD, 1.5e-3), OLD, version=3)
    assert proof.passed is passed, proof.reason
    assert ("the engine has the old weights" in proof.reason) is not passed


def test_weights_like_those_before_are_proven_and_said_to_be_unchanged():
    proof = prove(OLD, shifted(OLD, 1e-6), OLD, version=3)
    assert (proof.passed, proof.changed) == (True, False)
    assert "the same ones as those served before" in proof.reason


def test_one_token_far_off_fails_though_the_mean_is_small():
    served = [*NEW.plain[:-1], [NEW.plain[-1][0] + 2 * MAX_BOUND]]
    many = [NEW.plain[0]] * 100
    assert not prove(Scored([*many, *served], []), Scored([*many, *NEW.plain], []), None, version=1).passed


def test_a_temperature_that_is_not_applied_is_caught_and_said():
    proof = prove(shifted(NEW, 0.0, hotter=0.3), NEW, OLD, version=3)
    assert not proof.passed
    assert "0.3 at most (at temperature 0.7 only)" in proof.reason


NAN = float("nan")
NOTHING = Scored([[NAN] * len(row) for row in OLD.plain], [NAN])


@pytest.mark.parametrize(
    ("now", "trained"), [(OLD, NOTHING), (NOTHING, NEW), (NOTHING, NOTHING), (NEW, Scored(NEW.plain, [NAN]))]
)
def test_what_is_no_number_proves_nothing(now, trained):
    assert not prove(now, trained, OLD, version=3).passed
    assert not prove(now, trained, None, version=3).passed


def test_weights_before_that_gave_no_numbers_are_not_compared_with():
    proof = prove(NEW, NEW, NOTHING, version=3)
    assert (proof.passed, proof.changed, proof.mean_movement) == (True, None, None)


@pytest.mark.parametrize("field", ["logprobs", "heated", "previous_logprobs"])
def test_a_trainers_probe_set_without_numbers_is_none(tmp_path, field):
    one = {"token_ids": [5, 6], "logprobs": [-1.0], "heated": [{"place": 0, "token": 1, "logprob": -1.0}]}
    (tmp_path / PROBE).write_text(json.dumps([one]))
    assert read(tmp_path / PROBE)
    damaged = {"heated": [{**one["heated"][0], "logprob": NAN}]}.get(field, [NAN])
    (tmp_path / PROBE).write_text(json.dumps([{**one, field: damaged}]))
    assert read(tmp_path / PROBE) is None


def test_without_a_version_before_only_agreement_counts():
    proof = prove(NEW, NEW, None, version=1)
    assert proof.passed
    assert proof.mean_movement is None


@pytest.mark.parametrize("other", [[[-1.0]], [[-1.0, -2.0, -3.0]], []])
def test_scores_of_another_probe_are_refused(other):
    with pytest.raises(ValueError, match="not of the same probe"):
        prove(OLD, Scored(other, OLD.heated), None, version=1)


def test_an_empty_probe_set_proves_nothing_and_is_refused(tmp_path):
    for nothing in (Scored([], []), Scored([[], []], [])):
        with pytest.raises(ProbeError, match="the probe set is empty, so nothing can be proven"):
            prove(nothing, nothing, nothing, version=1)
    for left in ([], [{"token_ids": [5], "logprobs": [], "heated": [{"place": 0, "token": 1, "logprob": -1.0}]}]):
        (tmp_path / PROBE).write_text(json.dumps(left))
        with pytest.raises(ProbeError, match="holds no sequence to score"):
            probe(tmp_path, 100)


def test_a_probe_is_cut_to_what_the_engine_takes_with_the_scores_of_what_is_left():
    heated = [Heated(place=place, token=9, logprob=-1.0) for place in (0, 2, 3)]
    whole = Probe(token_ids=[1, 2, 3, 4], logprobs=[-1, -2, -3], heated=heated, previous_logprobs=[-4, -5, -6])
    assert cut(whole, 4) == whole
    short = cut(whole, 3)
    assert (short.token_ids, short.logprobs, short.previous_logprobs) == ([1, 2, 3], [-1, -2], [-4, -5])
    assert [one.place for one in short.heated] == [0, 2]


def test_the_longest_sequence_is_the_context_where_that_is_cheap():
    assert affordable(2_800_000, 2048, accelerated=False) == 2048
    assert affordable(135_000_000, 8192, accelerated=False) == ALWAYS
    assert affordable(7_000_000_000, 4096, accelerated=True) > 2048
    assert affordable(7_000_000_000, 128, accelerated=False) == 128


def test_places_are_spread_from_the_first_to_the_last():
    assert spread(range(100)) == [0, 33, 66, 99]
    assert spread([7, 8]) == [7, 8]
    assert spread([]) == []
