"""What a model reads: the statement and the tools. Pure, and short enough for a model of a few million parameters.

A statement comes from behaviour (an expression and what it gave), never from the name of a test.
"""

import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from sandboxes.prompts import SHIPPED

SYSTEM = SHIPPED.texts["swe.system.txt"]  # counts towards the budget of statements that are written
BUDGET = 900  # characters of a procedural problem's system text and statement together
WINDOW = 14  # lines of source at most

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_WITHIN = re.compile(r"\w+\.<locals>\.")  # "test_curry.<locals>.foo"

Numbered = Sequence[tuple[int, str]]


def _tool(
    name: str, description: str, *, optional: Sequence[str] = (), **properties: Mapping[str, str]
) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


_PATH = {"type": "string", "description": "File, relative to the package's root."}
_LINE = {"type": "integer", "description": "Line number, from 1."}

TOOLS: list[dict[str, Any]] = [
    _tool("view", "Show the 20 lines around a line.", path=_PATH, line=_LINE),
    _tool(
        "edit",
        "Replace text that starts on a line and occurs there once.",
        optional=("path",),
        old={"type": "string", "description": "The text to replace; may span lines."},
        new={"type": "string", "description": "The text to put there."},
        line=_LINE,
        path=_PATH | {"description": "File; by default the one shown last."},
    ),
    _tool(
        "run", "Run a shell command in the package's root.", command={"type": "string", "description": "The command."}
    ),
    _tool("test", "Run the existing tests."),
    _tool("submit", "Hand the work in; ends the episode."),
]


def prompt(package: str, behaviour: str, *, hint: int, path: str = "", function: str = "", lines: Numbered = ()) -> str:
    """The statement. `hint` 0: the failing behaviour only; 1: and the file; 2: and the function; 3: and `lines` of it.

    4 is 3 with the faulty line alone.
    """
    places = [package, path, function][: min(hint, 2) + 1]
    text = " ".join(place for place in places if place) + "\n" + behaviour
    if hint >= 3:
        text += "\n" + numbered(lines)
    return text


def behaviour(expression: str, got: str, *, width: int = 200) -> str:
    """One line about what is wrong: the expression that failed and what it gave.

    Objects are told without their address, and without the test in whose body they were made.
    """
    left, right = (shorten(_WITHIN.sub("", _ADDRESS.sub("", said)), width // 2) for said in (expression, got))
    return f"Fails: {left} -> {right}" if left else f"Fails: {right}"


def numbered(lines: Numbered) -> str:
    """Source lines as `123| code`."""
    return "\n".join(f"{number}| {code}" for number, code in lines)


def window(
    source: str, line: int, *, first: int, last: int, seed: str, budget: int, most: int = WINDOW
) -> list[tuple[int, str]]:
    """At most `most` lines of [first, last], `line` at a random place among them; at most `budget` characters."""
    text = source.split("\n")
    draw = random.Random(seed)  # noqa: S311 - a layout, not a secret
    for size in range(min(most, last - first + 1), 0, -1):
        lowest = max(first, line - size + 1)
        start = draw.randint(lowest, max(lowest, min(line, last - size + 1)))
        lines = [(number, text[number - 1]) for number in range(start, start + size)]
        if len(numbered(lines)) <= budget:
            return lines
    return [(line, text[line - 1])]


def shorten(text: str, width: int) -> str:
    """One line of at most `width` characters; the middle goes first."""
    flat = " ".join(text.split())
    if len(flat) <= width:
        return flat
    head = (width - 3) * 2 // 3
    return flat[:head] + "..." + flat[len(flat) - (width - 3 - head) :]
