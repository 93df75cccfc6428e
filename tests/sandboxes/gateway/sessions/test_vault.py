"""Keys of records: what they open, and that a destroyed one is nowhere."""

import os

import pytest

from sandboxes.gateway.sessions.vault import Unreadable, Vault


def test_a_record_opens_with_its_sessions_key_at_its_own_place_only(tmp_path):
    vault = Vault(tmp_path)
    one, two = vault.create(1), vault.create(2)
    locked = one.lock("c1 intent", b"said")
    assert b"said" not in locked
    assert locked != one.lock("c1 intent", b"said")
    assert vault.open(1).unlock("c1 intent", locked) == b"said"
    changed = locked[:-1] + bytes([locked[-1] ^ 1])
    for cipher, place, record in (
        (two, "c1 intent", locked),
        (one, "c2 intent", locked),
        (one, "c1 intent", changed),
        (one, "c1 intent", b""),
    ):
        with pytest.raises(Unreadable):
            cipher.unlock(place, record)


def test_a_destroyed_key_was_overwritten_and_only_its_owner_could_read_it(tmp_path):
    vault = Vault(tmp_path / "keys")
    vault.create(7)
    file = tmp_path / "keys" / "7"
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    key = file.read_bytes()
    os.link(file, tmp_path / "same-blocks")
    vault.destroy(7)
    vault.destroy(7)
    assert not file.exists() and (tmp_path / "same-blocks").read_bytes() != key
    assert vault.open(7) is None and list(vault.numbers()) == []


def test_a_new_key_takes_the_place_of_one_that_was_left_and_a_damaged_one_is_told_apart(tmp_path):
    vault = Vault(tmp_path)
    locked = vault.create(1).lock("p", b"said")
    with pytest.raises(Unreadable):
        vault.create(1).unlock("p", locked)
    (tmp_path / "1").write_bytes(b"short")
    with pytest.raises(Unreadable, match="damaged"):
        vault.open(1)
