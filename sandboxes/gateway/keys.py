"""Three secrets: the operator key (a file), and per session a model key and a reward key (kept as digests only)."""

import hashlib
import hmac
import os
import secrets
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
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        # O_EXCL: of two gateways that start together one writes, the other reads.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _existing(path)
    with os.fdopen(handle, "w") as file:
        key = new_key("operator")
        file.write(key + "\n")
    return key


def _existing(path: Path) -> str:
    if path.stat().st_mode & 0o077:
        raise ValueError(f"{path} can be read by others; run: chmod 600 {path}")
    key = path.read_text().strip()
    if not key:
        raise ValueError(f"{path} is empty; delete it and start again to get a new operator key")
    return key


def bearer(headers: dict[str, str]) -> str:
    """The key in `Authorization: Bearer` or `x-api-key`; empty where there is none. Header names in lower case."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return key.strip()
    return headers.get("x-api-key", "").strip()
