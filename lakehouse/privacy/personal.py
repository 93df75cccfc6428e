"""Personal data. Candidates are cut out by their looks; whether they are any is said by a library that knows the rules:

e-mail addresses by email-validator, telephone numbers by Google's metadata in phonenumbers, accounts, cards and national
ids by the check digits in python-stdnum, addresses of the internet by Python's ipaddress.
"""

import ipaddress
import re
from collections.abc import Callable, Iterator
from functools import lru_cache

import phonenumbers
import stdnum.br.cpf
import stdnum.cn.ric
import stdnum.de.idnr
import stdnum.es.dni
import stdnum.es.nie
import stdnum.fi.hetu
import stdnum.fr.nir
import stdnum.gb.nhs
import stdnum.iban
import stdnum.in_.aadhaar
import stdnum.it.codicefiscale
import stdnum.luhn
import stdnum.se.personnummer
import stdnum.us.ssn
from email_validator import EmailNotValidError, validate_email

_LOCAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._%+'-]{0,63}\Z")
_DOMAIN = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z]{2,24}(?![A-Za-z0-9_])")
_FILES = {
    "cfg",
    "conf",
    "css",
    "csv",
    "html",
    "ini",
    "js",
    "json",
    "lock",
    "log",
    "sql",
    "toml",
    "txt",
    "xml",
    "yaml",
    "yml",
}
_ROLES = {"git", "svn", "hg"}  # of addresses of repositories, such as git@host:path


def personal(text: str) -> Iterator[tuple[str, str]]:
    """Pairs of a detector's name and what it found in the text."""
    yield from (("email", value) for value in _emails(text))
    numbers = _around_numbers(text)
    for name, looks, is_one in _NUMBERS:
        yield from ((name, match[0]) for match in looks.finditer(numbers) if is_one(match[0]))
    for name, looks, is_one in _LETTERED:
        yield from ((name, match[0]) for match in looks.finditer(text) if is_one(match[0]))
    yield from (("iban", value) for value in _ibans(text))


def _around_numbers(text: str) -> str:
    """A line for each place with digits enough, with a little of what stands before and after them."""
    return "\n".join(text[max(0, run.start() - 4) : run.end() + 4] for run in _DIGITS.finditer(text))


def _emails(text: str) -> Iterator[str]:
    at = text.find("@")
    while at >= 0:  # outwards from each @, so that a long run of letters costs nothing
        local, domain = _LOCAL.search(text[max(0, at - 64) : at]), _DOMAIN.match(text, at + 1, at + 254)
        if local and domain and local[0].lower() not in _ROLES and _is_email(f"{local[0]}@{domain[0]}"):
            yield f"{local[0]}@{domain[0]}"
        at = text.find("@", at + 1)


@lru_cache(4096)
def _is_email(address: str) -> bool:
    if address.rpartition(".")[2].lower() in _FILES:  # no domain ends so: something like NAME@VERSION.json
        return False
    try:
        validate_email(address, check_deliverability=False)
    except EmailNotValidError:
        return False
    return True


def _phone(region: str | None) -> Callable[[str], bool]:
    @lru_cache(4096)
    def is_one(number: str) -> bool:
        try:
            return phonenumbers.is_valid_number(phonenumbers.parse(number, region))
        except phonenumbers.NumberParseException:
            return False

    return is_one


def _ibans(text: str) -> Iterator[str]:
    for match in _IBAN.finditer(text):
        value = match[0]
        while len(value) >= 15:  # a following word in capitals may have been taken for its last group
            if stdnum.iban.is_valid(value):
                yield value
                break
            value = value.rpartition(" ")[0]


def _is_public(address: str) -> bool:
    """Somebody's address on the internet, and no version such as 1.2.3.4."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        return found.is_global and found in _ASSIGNED
    return found.is_global and not found.is_multicast and sum(part > 19 for part in found.packed) >= 2


_DIGITS = re.compile(r"\d(?:[^\w\n]{0,2}\d){5,}")
_IBAN = re.compile(r"[A-Z]{2}\d{2}(?<![A-Za-z0-9][A-Z]{2}\d{2})(?: ?[A-Z0-9]){11,30}(?![A-Za-z0-9])")
_ASSIGNED = ipaddress.ip_network("2000::/3")
_ALONE, _ENDS = r"(?<![\w.+-])", r"(?![\w-]|\.\w)"


def _looks(pattern: str) -> re.Pattern[str]:
    return re.compile(_ALONE + pattern + _ENDS)


def _grouped(pattern: str) -> re.Pattern[str]:
    """Groups of digits, and no cells of a longer row of numbers."""
    return re.compile(r"(?<!\d )" + _ALONE + pattern + _ENDS + r"(?! \d)")


def _is_card(number: str) -> bool:
    digits = re.sub(r"\D", "", number)
    return len(digits) == (
        15 if digits[:2] in ("34", "37") else 14 if digits[0] == "3" and digits[:2] != "35" else 16
    ) and (stdnum.luhn.is_valid(digits))


_ISSUERS = r"(?:4\d|5[1-5]|2[2-7]|3[045678]|6[0245])"  # the first two digits


# What a person is known by in one country or all, where it can be told from any other number by its form and check digits.
_NUMBERS: tuple[tuple[str, re.Pattern[str], Callable[[str], bool]], ...] = (
    ("phone", _looks(r"\+\d(?:[ ()./-]{0,2}\d){7,14}"), _phone(None)),
    ("phone", _looks(r"(?:\(\d{3}\) ?\d{3}[ .-]|\d{3}([.-])\d{3}\1)\d{4}"), _phone("US")),
    (
        "card",
        _looks(rf"{_ISSUERS}(?:\d{{12,14}}|\d\d([ -])\d{{4}}\1\d{{4}}\1\d{{4}}|\d\d([ -])\d{{6}}\2\d{{4,5}})"),
        _is_card,
    ),
    ("ip_address", _looks(r"\d{1,3}(?:\.\d{1,3}){3}"), _is_public),
    ("us_ssn", _looks(r"\d{3}-\d{2}-\d{4}"), stdnum.us.ssn.is_valid),
    ("gb_nhs", _grouped(r"\d{3} \d{3} \d{4}"), stdnum.gb.nhs.is_valid),
    ("de_idnr", _grouped(r"\d{2} \d{3} \d{3} \d{3}"), stdnum.de.idnr.is_valid),
    ("fr_nir", _grouped(r"[12]( ?)\d{2}\1\d{2}\1\d[\dAB]\1\d{3}\1\d{3}\1\d{2}"), stdnum.fr.nir.is_valid),
    ("es_id", _looks(r"\d{8}-?[A-Z]"), stdnum.es.dni.is_valid),
    ("es_id", _looks(r"[XYZ]\d{7}-?[A-Z]"), stdnum.es.nie.is_valid),
    ("fi_id", _looks(r"\d{6}[-+A]\d{3}[0-9A-Y]"), stdnum.fi.hetu.is_valid),
    ("se_id", _looks(r"\d{6}(?:\d{2})?-\d{4}"), stdnum.se.personnummer.is_valid),
    ("br_cpf", _looks(r"\d{3}\.\d{3}\.\d{3}-\d{2}"), stdnum.br.cpf.is_valid),
    ("cn_id", _looks(r"\d{17}[\dX]"), stdnum.cn.ric.is_valid),
    ("in_aadhaar", _grouped(r"\d{4} \d{4} \d{4}"), stdnum.in_.aadhaar.is_valid),
)
_LETTERED: tuple[tuple[str, re.Pattern[str], Callable[[str], bool]], ...] = (
    ("ip_address", re.compile(r"[23][0-9A-Fa-f]{3}:(?<![\w:.].{5})[0-9A-Fa-f:]{3,34}(?![\w:])"), _is_public),
    (
        "it_id",
        re.compile(r"[A-Z]{6}\d{2}(?<!\w.{8})[A-EHLMPRST]\d{2}[A-Z]\d{3}[A-Z](?!\w)"),
        stdnum.it.codicefiscale.is_valid,
    ),
)
