import pytest

from tasks.progress import Clock, listener, listening


def test_a_clock_adds_up_under_each_name_and_counts_what_fails():
    clock = Clock()
    with clock("collect"):
        pass
    with pytest.raises(ValueError), clock("train"):
        raise ValueError
    clock.add({"collect": 2.0, "label": 1.5})
    assert clock.seconds.keys() == {"collect", "train", "label"}
    assert 2.0 <= clock.seconds["collect"] < 2.5
    assert clock.seconds["label"] == 1.5


def test_a_listener_hears_only_while_it_listens():
    assert listener.get() is None
    with pytest.raises(ValueError), listening(print):
        assert listener.get() is print
        raise ValueError
    assert listener.get() is None
