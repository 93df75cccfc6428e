"""Lakes in an object store: what the Delta library and DuckDB are told, so that both reach the same bucket.

S3 and what speaks its protocol, with the settings that AWS's own tools read from the environment. Commits rest on conditional
put (`If-None-Match`), so that of two writers of one version one is refused; a store without it is no place for a lake.
"""

import os
from urllib.parse import urlsplit

SCHEMES = ("s3", "s3a")


class UnsupportedStore(ValueError):
    """A lake's URL of a kind that is not supported, or settings that are missing."""


def is_folder(lake: str) -> bool:
    return "://" not in lake


def options(lake: str) -> dict[str, str] | None:
    """Options of the Delta library. UnsupportedStore where the URL is of another kind."""
    if is_folder(lake):
        return None
    scheme = urlsplit(lake).scheme
    if scheme not in SCHEMES:
        raise UnsupportedStore(
            f"a lake at {scheme}:// is not supported: set LAKELOOP_LAKE to a folder, or to s3://BUCKET/PREFIX"
        )
    endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
    found = {"conditional_put": "etag"}
    if endpoint.startswith("http://"):
        found["allow_http"] = "true"  # the operator wrote the address so: a server on the same machine or network
    return found


def secret(lake: str) -> str | None:
    """SQL that gives DuckDB the same bucket; None for a folder. UnsupportedStore where no key is in the environment."""
    if options(lake) is None:
        return None
    key, value = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    if not key or not value:
        raise UnsupportedStore(
            f"the lake {lake} needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment; of a role, "
            "export its temporary key with AWS_SESSION_TOKEN"
        )
    url = urlsplit(lake)
    held = {
        "key_id": key,
        "secret": value,
        "session_token": os.environ.get("AWS_SESSION_TOKEN"),
        "region": os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"),
        "scope": f"{url.scheme}://{url.netloc}",
    }
    endpoint = urlsplit(os.environ.get("AWS_ENDPOINT_URL", ""))
    flags = ""
    if endpoint.netloc:
        held |= {"endpoint": endpoint.netloc, "url_style": "path"}
        flags = f", use_ssl {'false' if endpoint.scheme == 'http' else 'true'}"
    told = ", ".join(f"{name} {_quoted(text)}" for name, text in held.items() if text)
    return f"create secret lake (type s3, provider config, {told}{flags})"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
