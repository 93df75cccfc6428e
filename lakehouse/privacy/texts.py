"""Texts and JSON documents of an episode: what there is to look through, and how values are replaced in it."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from lakehouse.records import dumps

_LONG_NUMBER = 10**8  # a whole number of nine digits or more may be a card or an id


class Replacer:
    """Puts a placeholder in the place of each value, wherever it stands."""

    def __init__(self, values: Mapping[str, str]) -> None:
        """`values`: what is to be replaced, with its detector."""
        self.forms = {form: detector for value, detector in values.items() for form in _forms(value)}
        longest_first = sorted(self.forms, key=len, reverse=True)
        self._any = re.compile("|".join(map(re.escape, longest_first)))

    def text(self, text: str, counted: Counter[str]) -> str:
        """`counted` is told of each replacement by its detector."""

        def placeholder(match: re.Match[str]) -> str:
            detector = self.forms[match[0]]
            counted[detector] += 1
            return f"<redacted:{detector}>"

        return self._any.sub(placeholder, text)

    def document(self, text: str, counted: Counter[str]) -> str:
        """A JSON document stays one, also where it is a string within another; what is none is a text."""
        if text[:1] not in ("{", "[", '"'):
            return self.text(text, counted)
        before = counted.total()
        try:
            replaced = self._value(json.loads(text), counted)
        except (ValueError, RecursionError):
            return self.text(text, counted)
        return dumps(replaced) if counted.total() > before else text

    def _value(self, value: Any, counted: Counter[str]) -> Any:
        if isinstance(value, str):
            return self.document(value, counted) if value[:1] in ("{", "[") else self.text(value, counted)
        if isinstance(value, dict):
            return {self.text(key, counted): self._value(one, counted) for key, one in value.items()}
        if isinstance(value, list):
            return [self._value(one, counted) for one in value]
        if _is_long(value) and self._any.search(str(value)):
            return self.text(str(value), counted)
        return value


def strings(text: str | None) -> Iterator[str]:
    """Every string of a JSON document, keys too, and of the documents that are strings in it; else the text itself."""
    if not text:
        return
    try:
        value = json.loads(text) if text[:1] in '{["' else text
    except ValueError:
        value = text
    yield from _strings(value)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
        if value[:1] in ("{", "["):  # a tool's arguments, say
            try:
                yield from _strings(json.loads(value))
            except (ValueError, RecursionError):
                return
    elif isinstance(value, dict):
        for key, one in value.items():
            yield key
            yield from _strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one)
    elif _is_long(value):
        yield str(value)


def _forms(value: str) -> set[str]:
    """A value as it stands in a text, in a JSON string, and in a JSON string within another."""
    forms = {value}
    for _ in range(2):
        forms |= {json.dumps(form, ensure_ascii=plain)[1:-1] for form in forms for plain in (True, False)}
    return forms


def _is_long(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) >= _LONG_NUMBER
