"""The lake's own key, for digests and signatures that only its keepers can make."""

import hashlib
import hmac
import os
import secrets

from lakehouse.home import home

NAME = "governance"


def keyed(kind: str, text: str) -> str:
    """HMAC-SHA-256 of a text under the key in `<home>/keys/governance`, as 64 hex digits. `kind` parts one use from another."""
    return hmac.new(_key(), f"{kind}\0{text}".encode(), hashlib.sha256).hexdigest()


def _key() -> bytes:
    """The key, made at its first use. Whoever loses it can verify no earlier signature."""
    path = home().keys / NAME
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_name(f".{NAME}.{os.getpid()}.{secrets.token_hex(4)}")
    if not path.exists():
        with os.fdopen(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
        try:
            os.link(fresh, path)  # whole or not at all, and the first one stays
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
    return bytes.fromhex(path.read_text().strip())
