"""What people and judges write beside an episode, looked through like the episode itself."""

from collections import Counter

from lakehouse.privacy.detect import found
from lakehouse.privacy.texts import Replacer, strings


def cleaned(text: str) -> str:
    """A text or JSON document with placeholders for secrets and personal data. DetectorsMissing where nobody can look."""
    values = {value: detector for one in strings(text) for value, detector in found(one).items()}
    return Replacer(values).document(text, Counter()) if values else text
