"""What counts as the answer: the leading clean part of a text, its aliases, and when a given answer matches."""

import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date
from fractions import Fraction
from typing import Literal

from sandboxes.problems.search.corpus import words

AnswerType = Literal["text", "number", "date"]

_NUMBER = re.compile(r"^(-?)(\d[\d,]*(?:\.\d+)?)\s*(million|billion)?\s*(.*)$")
_MEASURE = re.compile(r"^(.*[A-Za-z].*?) -?\d[\d,.]* (?:m|km)$")  # "Nevado Huascaran 6,768 m"
_SCALE = {None: 1, "million": 10**6, "billion": 10**9}
LONGEST_NUMBER = 200  # characters, unit and all
_ARTICLES = frozenset({"the", "a", "an"})
_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_DATES = (  # day, month and year by name
    re.compile(r"(?P<day>\d{1,2})(?:st|nd|rd|th)?\s+(?:of\s+)?(?P<month>[A-Za-z]{3,9})\.?,?\s+(?P<year>\d{3,4})"),
    re.compile(r"(?P<month>[A-Za-z]{3,9})\.?\s+(?P<day>\d{1,2})(?:st|nd|rd|th)?,?\s+(?P<year>\d{3,4})"),
    re.compile(r"(?P<year>\d{4})-(?P<month>\d{2})-(?P<day>\d{2})"),
)


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


def type_of(form: str) -> AnswerType:
    """How an answer is compared."""
    if day_of(form):
        return "date"
    return "number" if _number(form) else "text"


def _number(value: str) -> tuple[Fraction, str] | None:
    """Value and unit of a text that is a number with at most a unit of two words, else None."""
    found = _NUMBER.match(value.strip()) if len(value) <= LONGEST_NUMBER else None  # int() refuses 4,300 digits
    if not found or len(found[4].split()) > 2 or any(c.isdigit() for c in found[4]):
        return None
    sign, digits, scale, unit = found.groups()
    magnitude = Fraction(digits.replace(",", "")) * _SCALE[scale]
    return (-magnitude if sign else magnitude), " ".join(words(unit))


def day_of(value: str) -> date | None:
    """The date that the whole text is: "28 July 1821", "July 28, 1821", "1821-07-28"; else None."""
    for pattern in _DATES:
        if found := pattern.fullmatch(value.strip(" .")):
            name = found["month"].lower()
            month = int(name) if name.isdigit() else _month(name)
            try:
                return date(int(found["year"]), month, int(found["day"]))
            except ValueError:
                return None
    return None


def _month(name: str) -> int:
    """1 to 12, or 0 where it is none: names in full, or cut to three or four letters."""
    number = _MONTHS.index(name[:3]) + 1 if name[:3] in _MONTHS else 0
    return number if number and (len(name) <= 4 or date(2000, number, 1).strftime("%B").lower() == name) else 0


def _same(given: str, wanted: str, kind: AnswerType | None) -> bool:
    if kind != "text" and (day := day_of(wanted)):
        return day_of(given) == day
    left, right = _number(given), _number(wanted)
    if kind != "text" and left and right:
        return left[0] == right[0] and left[1] in ("", right[1])
    plain = [[word for word in words(text) if word not in _ARTICLES] for text in (given, wanted)]
    if plain[1]:
        return plain[0] == plain[1]
    return bool(squad(wanted)) and squad(given) == squad(wanted)  # a script without ASCII letters


def match(given: str | None, forms: Iterable[str], kind: AnswerType | None = None) -> bool:
    """Whether an answer is one of the accepted forms: words without case, accents, articles; numbers as numbers, dates as
    dates. `kind` "text" compares words only, as versions must be, where 1.10 is not 1.1; None goes by each form's looks.
    """
    return given is not None and any(_same(given, form, kind) for form in forms)


def squad(text: str) -> list[str]:
    """The tokens that SQuAD's evaluation compares (Rajpurkar et al. 2016): lower case, no punctuation, no articles."""
    plain = "".join(c for c in text.lower() if c not in string.punctuation)
    return [token for token in plain.split() if token not in _ARTICLES]


def exact(given: str | None, forms: Iterable[str]) -> bool:
    """Exact match as SQuAD and HotpotQA count it, with the best of the forms."""
    return given is not None and any(bool(squad(form)) and squad(given) == squad(form) for form in forms)


def f1(given: str | None, forms: Iterable[str]) -> float:
    """Token F1, 0 to 1, as SQuAD and HotpotQA count it, with the best of the forms."""
    return 0.0 if given is None else max((_f1(squad(given), squad(form)) for form in forms), default=0.0)


def _f1(given: Sequence[str], wanted: Sequence[str]) -> float:
    whole = {"yes", "no", "noanswer"}  # HotpotQA: all or nothing
    if not given or not wanted or whole & {" ".join(given), " ".join(wanted)}:
        return float(given == wanted)
    common = sum((Counter(given) & Counter(wanted)).values())
    return 2 * common / (len(given) + len(wanted))
