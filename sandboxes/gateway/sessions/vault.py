"""A key per session, in a file of its own: whoever destroys it makes all that the journal holds of the session unreadable.

Records are AES-256-GCM (NIST SP 800-38D) with a random nonce of 96 bits each, bound to where they stand: a record that was
moved to another call does not open. A key file is overwritten before it is unlinked. That leaves nothing on a disk that
writes in place; file systems and disks that write elsewhere keep old blocks for a while, see docs/privacy.md.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES, NONCE_BYTES = 32, 12


class Unreadable(OSError):
    """A record whose key is gone, or that was changed. What the journal raises, so also a `JournalError`."""


class Cipher:
    """Writes and reads the records of one session."""

    def __init__(self, key: bytes) -> None:
        self._aead = AESGCM(key)

    def lock(self, place: str, record: bytes) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._aead.encrypt(nonce, record, place.encode())

    def unlock(self, place: str, locked: bytes) -> bytes:
        """Unreadable where it was written with another key, for another place, or changed."""
        try:
            return self._aead.decrypt(locked[:NONCE_BYTES], locked[NONCE_BYTES:], place.encode())
        except (InvalidTag, ValueError) as error:
            raise Unreadable(f"the record of {place} does not open with its session's key") from error


class Vault:
    """The key files of a gateway's sessions, by session number; only their owner may read them. Raises OSError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def create(self, n: int) -> Cipher:
        """A new key, on disk when this returns. One that an earlier journal left under this number is destroyed."""
        self.destroy(n)
        key = AESGCM.generate_key(bit_length=8 * KEY_BYTES)
        handle = os.open(self._path(n), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(handle, key)
            os.fsync(handle)
        finally:
            os.close(handle)
        self._sync()
        return Cipher(key)

    def open(self, n: int) -> Cipher | None:
        """None where there is no key of this number."""
        try:
            key = self._path(n).read_bytes()
        except FileNotFoundError:
            return None
        if len(key) != KEY_BYTES:
            raise Unreadable(
                f"{self._path(n)} is no key: it was damaged, and with it the record of its session is lost"
            )
        return Cipher(key)

    def destroy(self, n: int) -> None:
        """Overwrite and remove the key, on disk too when this returns. Nothing where there is none."""
        try:
            handle = os.open(self._path(n), os.O_WRONLY)
        except FileNotFoundError:
            return
        try:
            os.pwrite(handle, os.urandom(KEY_BYTES), 0)
            os.fsync(handle)
        finally:
            os.close(handle)
        self._path(n).unlink(missing_ok=True)
        self._sync()

    def numbers(self) -> Iterator[int]:
        """Of every key there is."""
        return (int(path.name) for path in self._folder.iterdir() if path.name.isdecimal())

    def _path(self, n: int) -> Path:
        return self._folder / str(n)

    def _sync(self) -> None:
        handle = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
