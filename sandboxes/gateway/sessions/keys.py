"""Three secrets: the operator key (a file), and per session a model key and a reward key (kept as digests only)."""

import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from pathlib import Path


def new_key(kind: str) -> str:
    """A random key that says what it is for, such as `ll-model-...`; 256 bits."""
    return f"ll-{kind}-{secrets.token_urlsafe(32)}"


def hashed(key: str) -> str:
    """What is stored of a session key. The keys are random, so a plain SHA-256 cannot be searched back."""
    return hashlib.sha256(key.encode()).hexdigest()


def same(given: str, expected: str) -> bool:
    """Compare in constant time. An empty key is never equal to anything."""
    return bool(given) and bool(expected) and hmac.compare_digest(given.encode(), expected.encode())


def operator_key(path: Path) -> str:
    """The operator key in `path`, made at first start. ValueError where it is empty or others may read it."""
    return _kept(path, "operator")


def metrics_key(path: Path) -> str:
    """The key that only reads /metrics, kept as the operator key is: a scraper needs no more."""
    return _kept(path, "metrics")


def _kept(path: Path, kind: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        # O_EXCL: of two gateways that start together one writes, the other reads.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _existing(path)
    with os.fdopen(handle, "w") as file:
        key = new_key(kind)
        file.write(key + "\n")
    return key


def rotate(path: Path) -> str:
    """Put a new operator key in the place of the old one, at once and whole; returns it.

    Gateways that run read the file again, so the old key stops working with their next request.
    """
    key = new_key("operator")
    beside = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(key + "\n")
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return key


class OperatorKey:
    """The operator key as the file has it now: looked at with every question, read again where it was replaced."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._value = operator_key(path)
        self._version = self._look()

    @property
    def value(self) -> str:
        """ValueError or OSError where the file has become unusable: then no key opens anything."""
        version = self._look()
        if version != self._version:
            self._value, self._version = _existing(self.path), version
        return self._value

    def _look(self) -> tuple[int, int, int]:
        found = self.path.stat()
        return found.st_ino, found.st_mtime_ns, found.st_size


def _existing(path: Path) -> str:
    if path.stat().st_mode & 0o077:
        raise ValueError(f"{path} can be read by others; run: chmod 600 {path}")
    key = path.read_text().strip()
    if not key:
        raise ValueError(f"{path} is empty; delete it and start again to get a new key")
    return key


def bearer(headers: Mapping[str, str]) -> str:
    """The key in `Authorization: Bearer` or `x-api-key`; empty where there is none. Header names in lower case."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return key.strip()
    return headers.get("x-api-key", "").strip()
