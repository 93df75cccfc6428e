"""A number as a model writes it, and when it is the one that was asked for.

Read as graders of GSM8K (`#### 18`) and MATH (`\\boxed{\\frac{3}{4}}`) read them: LaTeX, thousands separators, currency,
per cent signs and units are no part of the value. A text with two numbers in it is no number: a list of guesses fails.
"""

import re
from fractions import Fraction

LONGEST = 80  # characters of an answer, once it is taken out of its sentence
MOST_DIGITS = 60
_SCALE = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9}
_PLAIN = r"\d+(?:,\d{3})*(?:\.\d+)?|\.\d+"
_NUMBER = re.compile(rf"(?P<number>{_PLAIN})(?:[eE](?P<exponent>[+-]?\d{{1,2}}))?")
_MIXED = re.compile(r"(\d+)\s+(\d+)/(\d+)")
_RATIO = re.compile(rf"(?P<over>{_PLAIN})\s*/\s*(?P<under>{_PLAIN})")
_POWER = re.compile(r"\s*(?:\\times|\\cdot|\*|x|\u00d7)\s*10\s*(?:\^|\*\*)\s*\{?\s*([+-]?\d{1,2})\s*\}?")
_UNIT = re.compile(r"\s*%?\s*[A-Za-z°²³/.^\s]{0,40}")


def final(text: str) -> str:
    """The part of a message that is its answer: the last \\boxed{...}, else what follows the last ####, else all of it."""
    boxed = _boxed(text)
    if boxed is not None:
        return boxed
    return text.rpartition("####")[2].strip()


def number(text: str) -> Fraction | None:
    """The one number of an answer, with at most a unit; None where it is none or several."""
    text = _without_latex(final(text))
    if not 0 < len(text) <= LONGEST:
        return None
    sign, text = (-1, text[1:]) if text.startswith("-") else (1, text)
    text = text.strip().lstrip("$€£ ")
    if text.startswith("-"):  # "$-5"
        sign, text = -sign, text[1:].strip()
    value, rest = _leading(text)
    if value is None:
        return None
    power = _POWER.match(rest)
    if power:
        value, rest = value * Fraction(10) ** int(power[1]), rest[power.end() :]
    word = rest.split()[0].lower() if rest.split() else ""
    if word in _SCALE:
        value, rest = value * _SCALE[word], rest.strip()[len(word) :]
    return sign * value if _UNIT.fullmatch(rest) else None


def same(given: Fraction | None, wanted: Fraction, tolerance: float) -> bool:
    """Whether a value is the wanted one, up to a relative tolerance (0: exactly)."""
    if given is None:
        return False
    return abs(given - wanted) <= Fraction(tolerance) * max(abs(wanted), Fraction(1, 1000))


def _leading(text: str) -> tuple[Fraction | None, str]:
    """The value a text begins with, and what comes after it."""
    if mixed := _MIXED.match(text):
        whole, over, under = map(int, mixed.groups())
        return (whole + Fraction(over, under) if under else None), text[mixed.end() :]
    if ratio := _RATIO.match(text):
        over_, under_ = _plain(ratio["over"]), _plain(ratio["under"])
        return (over_ / under_ if under_ else None), text[ratio.end() :]
    if found := _NUMBER.match(text):
        scale = Fraction(10) ** int(found["exponent"] or 0)
        return _plain(found["number"]) * scale, text[found.end() :]
    return None, text


def _plain(digits: str) -> Fraction:
    return Fraction(digits.replace(",", "")[:MOST_DIGITS])


def _boxed(text: str) -> str | None:
    """What stands in the last \\boxed{...}, braces balanced."""
    start = max(text.rfind("\\boxed{"), text.rfind("\\fbox{"))
    if start < 0:
        return None
    depth, first = 0, text.index("{", start)
    for at in range(first, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[first + 1 : at].strip()
    return None


def _without_latex(text: str) -> str:
    text = text.replace("\u2212", "-").replace("\u00a0", " ").strip().strip("$").rstrip(".").strip()
    text = re.sub(r"\\[dt]?frac\s*\{([^{}]+)\}\s*\{([^{}]+)\}", r"\1/\2", text)
    text = re.sub(r"\\[dt]?frac\s*(\d)\s*(\d)", r"\1/\2", text)
    text = re.sub(r"\\(?:text|mathrm|mbox|textbf|mathbf)\s*\{([^{}]*)\}", r" \1", text)
    text = re.sub(r"\^\s*\{?\s*\\circ\s*\}?", "", text)
    text = re.sub(r"\\(?:left|right|,|!|;|:|quad|\s)", "", text)
    text = text.replace("\\%", "%").replace("\\$", "$").replace("{,}", ",")
    text = re.sub(r"(\d)\s*,\s*(\d{3})(?!\d)", r"\1,\2", text)
    return re.sub(r"^[A-Za-z]\s*=\s*", "", text).strip()
