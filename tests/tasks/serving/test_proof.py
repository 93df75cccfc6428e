import pytest

from tasks.serving.proof import MAX_BOUND, prove

OLD = [[-1.0, -2.0, -3.0], [-4.0]]
NEW = [[-1.5, -2.5, -3.5], [-4.5]]


def shifted(scores, by):
    return [[value + by for value in row] for row in scores]


def test_weights_that_agree_with_the_trainer_and_moved_are_proven():
    proof = prove(shifted(NEW, 1e-6), NEW, OLD, version=3)
    assert (proof.passed, proof.changed) == (True, True)
    assert (proof.version, proof.sequences, proof.tokens) == (3, 2, 4)
    assert proof.mean_difference == pytest.approx(1e-6, rel=1e-3)
    assert proof.mean_movement == pytest.approx(0.5, rel=1e-3)


def test_a_reload_that_changed_nothing_is_caught_against_the_trainer():
    proof = prove(OLD, NEW, OLD, version=3)
    assert not proof.passed
    assert "differ from the trainer's by 0.5" in proof.reason


def test_a_reload_that_changed_nothing_is_caught_even_when_training_moved_less_than_the_bound():
    proof = prove(OLD, shifted(OLD, 1e-4), OLD, version=3)
    assert not proof.passed
    assert "did not move" in proof.reason


def test_weights_like_those_before_are_proven_and_said_to_be_unchanged():
    proof = prove(OLD, shifted(OLD, 1e-6), OLD, version=3)
    assert (proof.passed, proof.changed) == (True, False)
    assert "the same ones as those served before" in proof.reason


def test_one_token_far_off_fails_though_the_mean_is_small():
    served = [*NEW[:-1], [NEW[-1][0] + 2 * MAX_BOUND]]
    many = [NEW[0]] * 100
    assert not prove([*many, *served], [*many, *NEW], None, version=1).passed


def test_without_a_version_before_only_agreement_counts():
    proof = prove(NEW, NEW, None, version=1)
    assert proof.passed
    assert proof.mean_movement is None


@pytest.mark.parametrize("other", [[[-1.0]], [[-1.0, -2.0, -3.0]], []])
def test_scores_of_another_probe_are_refused(other):
    with pytest.raises(ValueError, match="not of the same probe"):
        prove(OLD, other, None, version=1)
