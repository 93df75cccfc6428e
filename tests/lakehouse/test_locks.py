"""Who holds a lock file, asked from outside."""

import fcntl

from lakehouse.locks import held, locked


def test_it_is_held_while_the_block_runs(tmp_path):
    path = tmp_path / "lock"
    assert not held(path)
    with locked(path, deadline_s=1, busy=TimeoutError):
        assert held(path)
    assert not held(path)


def test_who_asks_is_not_taken_for_who_holds(tmp_path):
    path = tmp_path / "lock"
    path.touch(0o444)
    with path.open() as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)  # as `held` does, for a moment
        assert not held(path)
