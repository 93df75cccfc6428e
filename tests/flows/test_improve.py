"""What is said where rounds had nothing to train on; the rounds themselves run in test_loop."""

from flows.improve import NothingImproved, Round


def test_rounds_in_which_nothing_was_trained_end_in_their_reasons_and_what_to_do():
    rounds = [
        Round(number=1, left_out={"zero_variance_group": 6, "not_trainable": 2}),
        Round(number=2, left_out={"zero_variance_group": 8}),
    ]
    said = str(NothingImproved(rounds))
    assert "14 zero_variance_group, 2 not_trainable" in said
    assert "every sample of a problem ended alike: take more problems or samples" in said
    assert "select status, error" in said
    assert "singleton" not in said


def test_a_reason_without_a_remedy_of_its_own_leads_to_the_documentation():
    assert "docs/operations.md" in str(NothingImproved([Round(number=1, left_out={"stale": 2})]))


def test_rounds_without_any_episode_say_so():
    assert "no episode landed" in str(NothingImproved([Round(number=1)]))
