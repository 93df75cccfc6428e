"""What counts as the answer: the leading clean part of a text, its aliases, and when a given answer matches."""

import re
from collections.abc import Iterable
from fractions import Fraction

from sandboxes.problems.search.corpus import words

_NUMBER = re.compile(r"^(-?)(\d[\d,]*(?:\.\d+)?)\s*(million|billion)?\s*(.*)$")
_MEASURE = re.compile(r"^(.*[A-Za-z].*?) -?\d[\d,.]* (?:m|km)$")  # "Nevado Huascaran 6,768 m"
_SCALE = {None: 1, "million": 10**6, "billion": 10**9}
_ARTICLES = frozenset({"the", "a", "an"})


def leading(text: str) -> str:
    """The part before the first ';', '(' or note: "28 July 1821 (from Spain)" gives "28 July 1821"."""
    return re.split(r"\s*(?:;|\(|\+\+|: note)", text, maxsplit=1)[0].strip(" ,")


def without_measure(value: str) -> str:
    """A point's name without its height; other values as they are."""
    found = _MEASURE.match(value)
    return found[1] if found else value


def accepted(text: str) -> list[str]:
    """Every accepted form of a passage's answer, the canonical one first."""
    canonical = leading(text)
    forms = [canonical, without_measure(canonical)]
    code = re.fullmatch(r"[^()]+\(([A-Z]{3})\)", text)  # a currency's code
    forms += [code[1], text] if code else []
    return list(dict.fromkeys(forms))


def _number(value: str) -> tuple[Fraction, str] | None:
    """Value and unit of a text that is a number with at most a unit of two words, else None."""
    found = _NUMBER.match(value.strip())
    if not found or len(found[4].split()) > 2 or any(c.isdigit() for c in found[4]):
        return None
    sign, digits, scale, unit = found.groups()
    magnitude = Fraction(digits.replace(",", "")) * _SCALE[scale]
    return (-magnitude if sign else magnitude), " ".join(words(unit))


def _same(given: str, wanted: str) -> bool:
    left, right = _number(given), _number(wanted)
    if left and right:
        return left[0] == right[0] and left[1] in ("", right[1])
    plain = [[word for word in words(text) if word not in _ARTICLES] for text in (given, wanted)]
    return bool(plain[1]) and plain[0] == plain[1]


def match(given: str | None, forms: Iterable[str]) -> bool:
    """Whether an answer is one of the accepted forms: words without case, accents, articles; numbers as numbers."""
    return given is not None and any(_same(given, form) for form in forms)
