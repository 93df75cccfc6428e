"""Secrets, by the formats that detect-secrets (Yelp) knows and a few newer ones.

Its detectors of high entropy and of unusual words are left out: in an agent's transcripts, which are full of digests,
ids and a small model's made-up words, nearly all that they find is none.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from detect_secrets.filters import heuristic
from detect_secrets.plugins.aws import AWSKeyDetector
from detect_secrets.plugins.azure_storage_key import AzureStorageKeyDetector
from detect_secrets.plugins.base import RegexBasedDetector
from detect_secrets.plugins.basic_auth import BasicAuthDetector
from detect_secrets.plugins.discord import DiscordBotTokenDetector
from detect_secrets.plugins.github_token import GitHubTokenDetector
from detect_secrets.plugins.gitlab_token import GitLabTokenDetector
from detect_secrets.plugins.jwt import JwtTokenDetector
from detect_secrets.plugins.keyword import KeywordDetector
from detect_secrets.plugins.mailchimp import MailchimpDetector
from detect_secrets.plugins.npm import NpmDetector
from detect_secrets.plugins.openai import OpenAIDetector
from detect_secrets.plugins.private_key import PrivateKeyDetector
from detect_secrets.plugins.pypi_token import PypiTokenDetector
from detect_secrets.plugins.sendgrid import SendGridDetector
from detect_secrets.plugins.slack import SlackDetector
from detect_secrets.plugins.square_oauth import SquareOAuthDetector
from detect_secrets.plugins.stripe import StripeDetector
from detect_secrets.plugins.telegram_token import TelegramBotTokenDetector
from detect_secrets.plugins.twilio import TwilioKeyDetector


class NewerFormats(RegexBasedDetector):
    """Formats that their makers introduced, or we did, after the library's last release."""

    secret_type = "api key"  # noqa: S105 - what it is called
    denylist = (
        re.compile(r"ll-(?<!\wll-)(?:model|reward|operator|metrics)-[\w-]{43}(?![\w-])"),  # the gateway's own keys
        re.compile(r"sk-(?<!\wsk-)(?:ant|proj|svcacct|or)-[\w-]{20,200}"),
        re.compile(r"AIza(?<!\wAIza)[\w-]{35}(?![\w-])"),
        re.compile(r"hf_(?<!\whf_)[A-Za-z0-9]{34}\b"),
        re.compile(r"github_pat_\w{60,100}"),
    )


@dataclass(frozen=True)
class Format:
    """A detector of one format. It is asked where one of the `hints` is in the text, as most texts have none."""

    name: str
    detector: RegexBasedDetector
    hints: tuple[str, ...]
    whole: bool = True  # the secret is all that the expression matches, else its last group where it has one

    def found(self, text: str) -> Iterator[str]:
        """The matches themselves: the library's own method gives a prefix where an expression has a group in it."""
        if any(hint in text for hint in self.hints):
            for expression in self.detector.denylist:
                for match in expression.finditer(text):
                    yield match[0] if self.whole else match[match.lastindex or 0]


# Left out of the library's: Artifactory (finds words in capitals that begin with AP), and the four of one vendor's cloud
# (they take as long as all others together).
_FORMATS: tuple[Format, ...] = (
    Format("aws_key", AWSKeyDetector(), ("AKIA", "ASIA", "ABIA", "ACCA", "A3T", "aws", "AWS"), whole=False),
    Format("azure_storage_key", AzureStorageKeyDetector(), ("AccountKey=",)),
    Format("url_password", BasicAuthDetector(), ("://",), whole=False),
    Format("discord_token", DiscordBotTokenDetector(), (".",)),
    Format("github_token", GitHubTokenDetector(), ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")),
    Format("gitlab_token", GitLabTokenDetector(), ("gl", "GR1348941")),
    Format("mailchimp_key", MailchimpDetector(), ("-us",)),
    Format("npm_token", NpmDetector(), ("_authToken",), whole=False),
    Format("openai_key", OpenAIDetector(), ("T3BlbkFJ",)),
    Format("pypi_token", PypiTokenDetector(), ("pypi-Ag",)),
    Format("sendgrid_key", SendGridDetector(), ("SG.",)),
    Format("slack_token", SlackDetector(), ("xox", "hooks.slack")),
    Format("square_secret", SquareOAuthDetector(), ("sq0csp",)),
    Format("stripe_key", StripeDetector(), ("k_live_",)),
    Format("telegram_token", TelegramBotTokenDetector(), (":",)),
    Format("twilio_key", TwilioKeyDetector(), ("AC", "SK")),
    Format("api_key", NewerFormats(), ("ll-", "sk-", "AIza", "hf_", "github_pat_")),
)
_JWT = JwtTokenDetector()
_WEB_TOKEN = re.compile(r"(?<![\w.-])eyJ[\w=-]{8,4000}\.[\w=-]{8,8000}(?:\.[\w=-]*)?")
_PRIVATE_KEY = PrivateKeyDetector()
_KEY_BLOCK = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----[^\0]*?(?:-----END [A-Z0-9 ]{3,60}-----|(?=\0)|\Z)"
)
_KEY_LINE = re.compile(r"[A-Za-z0-9+/=]{40,}")

_KEYWORD = KeywordDetector()
_HEXADECIMAL = re.compile(r"[0-9A-F]+")  # one prefix of AWS consists of such letters
_PLACEHOLDERS = ("password", "passwd", "secret", "changeme", "example")
_NAMES = ("passw", "secret", "api_key", "apikey", "auth_token", "access_key", "credential", "private_key")
_LONGEST_LINE = 400  # beyond, a line is data and no assignment, and the library's expression for it becomes slow


def secrets(text: str) -> Iterator[tuple[str, str]]:
    """Pairs of a detector's name and what it found in the text."""
    for form in _FORMATS:
        yield from ((form.name, value) for value in form.found(text) if not _harmless(value))
    yield from (("jwt", value) for value in _web_tokens(text))
    if "PRIVATE KEY" in text and any(_PRIVATE_KEY.analyze_string(text)):
        yield from (("private_key", value) for value in _key_material(_KEY_BLOCK.findall(text)))
    for line in _naming_lines(text):
        yield from (("password", value) for value in _assigned(line))


def _harmless(value: str) -> bool:
    return value.lower() in _PLACEHOLDERS or "..." in value or _HEXADECIMAL.fullmatch(value) is not None


def _web_tokens(text: str) -> Iterator[str]:
    """What is formally one: the library's own expression ends before the signature, and is slow over long data."""
    for match in _WEB_TOKEN.finditer(text) if "eyJ" in text else ():
        if _JWT.is_formally_valid(match[0]):
            yield match[0]


def _naming_lines(text: str) -> set[str]:
    """The lines in which something is called a password or the like."""
    lower, lines = text.lower(), set()
    if len(lower) != len(text):  # a few letters of other scripts have a longer small form
        lower = text
    for name in _NAMES:
        at = lower.find(name)
        while at >= 0:
            start, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
            end = len(text) if end < 0 else end
            if end - start <= _LONGEST_LINE:
                lines.add(text[start:end])
            at = lower.find(name, end)
    return lines


def _key_material(blocks: Iterable[str]) -> Iterator[str]:
    """Blocks, and their lines: another text may hold only a part."""
    for block in blocks:
        yield block
        yield from _KEY_LINE.findall(block)


def _assigned(line: str) -> Iterator[str]:
    """Literals assigned to a name like `password`. The library's own filters drop placeholders and expressions."""
    if heuristic.is_indirect_reference(line):
        return
    for value in _KEYWORD.analyze_string(line):
        if not _harmless(value) and not any(
            harmless(value)
            for harmless in (
                heuristic.is_sequential_string,
                heuristic.is_potential_uuid,
                heuristic.is_templated_secret,
                heuristic.is_prefixed_with_dollar_sign,
                heuristic.is_not_alphanumeric_string,
            )
        ):
            yield value
