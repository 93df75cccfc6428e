"""What an engine calls its weights. A number is a registered version, and says that they were proven to be that one's.

A deployment swaps weights under another label, which it replaces with the number once they are proven: where it dies in
between, nobody takes them for proven.
"""

import secrets

UNPROVEN = "unproven-"
DOUBTED = "-1"  # a swap or a proof failed: nobody knows what they are


def unproven(version: int) -> str:
    """A label for weights that are swapped in as `version`. No two swaps have the same."""
    return f"{UNPROVEN}{version}-{secrets.token_hex(4)}"


def claimed(label: str) -> str | None:
    """The number that weights of such a label get once they are proven; None for a label that is none of these."""
    version, _, swap = label.removeprefix(UNPROVEN).partition("-")
    return version if label.startswith(UNPROVEN) and version.isdecimal() and swap else None
