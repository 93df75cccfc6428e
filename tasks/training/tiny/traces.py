"""Pretraining text for `tiny`: endless tool-use traces over invented worlds, in which everything must be copied.

Countries, values and tool names are drawn at random for every trace, so nothing can be learnt by heart: what is left to
learn is to read a tool's signature, to search for what the question names, to open what the results name and to answer
with what was read. The words `search`, `open` and `answer` do not occur as tools: those are learnt in the warm start.
"""

import json
import random
import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from sandboxes.problems.search.corpus import load
from sandboxes.problems.search.questions import split_of

ONSETS = "b br c ch d dr f fl g gr h j k kr l m n p pr qu r s sh st t th tr v w y z".split()
VOWELS = "a a a e e i i o o u ai ea ia io ou".split()
CODAS = ["", "", "", "", "l", "m", "n", "n", "r", "s", "t", "nd", "rk", "sh"]
FIELDS = (
    "Capital|Internet code|Anthem|Highest point|Lowest point|Nationality|Coastline|Area|Independence|"
    "National holiday|Population|Languages|Religions|Climate|Currency|Main port|Largest river|Founder|"
    "Phone code|National symbol|Road length|Oldest town|Exports|Motto|Driving side|Median age|Airport count|"
    "Ethnic groups|Patron|Elevation"
).split("|")
SYSTEMS = (
    "Use the tools to find out.",
    "Look it up.",
    "Find what is asked for.",
    "Answer with the tools.",
    "Read, then tell.",
    "",
)
FIND = "find lookup query seek grep locate".split()
READ = "read show fetch get load page".split()
TELL = "reply respond finish say tell submit".split()
FIND_ARGUMENT = "query text term words key".split()
READ_ARGUMENT = "title name page item".split()
TELL_ARGUMENT = "text value result content".split()
SHARES = (0.475, 0.0875, 0.2125, 0.225)  # of lookup, ranking, recital and echo among the traces without code
MONTHS = "January February March April May June July August September October November December".split()


@dataclass(frozen=True)
class Piece:
    """A stretch of a trace. `sampled` marks what a policy would have written."""

    text: str
    sampled: bool


Trace = list[Piece]


@cache
def real_words() -> tuple[str, ...]:
    """Words of the training countries' passages, so that the vocabulary knows them. Drawn at random, they tell no fact."""
    texts = (
        f"{country} {' '.join(fields.values())}"
        for country, fields in sorted(load().countries.items())
        if split_of(country) == "train"
    )
    found = {word for text in texts for word in re.findall(r"[^\W\d_]['\w-]+", text)}
    return tuple(sorted(found))


def word(rng: random.Random) -> str:
    """A name: a real word two times in five, else invented, one in twelve of those with an accent, apostrophe or hyphen."""
    if rng.random() < 0.4:
        return rng.choice(real_words())
    syllables = rng.choices((1, 2, 3, 4), (2, 5, 3, 1))[0]
    body = "".join(rng.choice(ONSETS) + rng.choice(VOWELS) for _ in range(syllables)) + rng.choice(CODAS)
    draw = rng.randrange(24)
    if draw == 0:
        body = body.replace(body[1:2], rng.choice("áéíóúãçñöü'-"), 1)
    elif draw == 1:
        body += rng.choice("-'") + rng.choice(ONSETS) + rng.choice(VOWELS)
    return body.upper() if rng.randrange(40) == 0 else body.capitalize()


def names(rng: random.Random, least: int, most: int, joint: str = " ") -> str:
    return joint.join(word(rng) for _ in range(rng.randint(least, most)))


def quantity(rng: random.Random) -> str:
    """A number as almanacs write them: plain, grouped, decimal, with a unit or a percent sign."""
    plain = rng.choice((rng.randint(0, 99), rng.randint(100, 9999), rng.randint(10_000, 90_000_000)))
    unit = rng.choice((" km", " m", " sq km", "%", " million", ""))
    return (f"{plain:,}" if rng.random() < 0.7 else f"{rng.uniform(0, 99):.1f}") + unit


def date(rng: random.Random) -> str:
    return f"{rng.randint(1, 28)} {rng.choice(MONTHS)} {rng.randint(1400, 2010)}"


def value(rng: random.Random) -> str:
    """A field's value."""
    kind = rng.randrange(12)
    if kind < 4:
        return names(rng, 1, rng.choice((1, 1, 2, 3)))
    if kind == 4:
        return "." + "".join(rng.choices(string.ascii_lowercase, k=2))
    if kind == 5:
        return quantity(rng)
    if kind == 6:
        return date(rng) + rng.choice(("", f" (from {word(rng)})"))
    if kind == 7:
        return f"{names(rng, 1, 2)} {quantity(rng)}"
    if kind == 8:
        return f'"{names(rng, 1, 4)}"'
    if kind == 9:
        return f"{word(rng)}(s)" if rng.random() < 0.5 else f"{names(rng, 1, 2)} ({names(rng, 1, 2)})"
    if kind == 10:
        return ", ".join(f"{word(rng)} {quantity(rng)}" for _ in range(rng.randint(2, 3)))
    return names(rng, 2, 4, ", ")


def message(role: str, text: str) -> Piece:
    return Piece(f"<|im_start|>{role}\n{text}<|im_end|>\n", sampled=False)


def tool_call(name: str, arguments: dict[str, Any]) -> Trace:
    """An assistant turn with one tool call, as the chat template writes it."""
    call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return [
        Piece("<|im_start|>assistant\n", sampled=False),
        Piece(f"<tool_call>{call}</tool_call><|im_end|>", sampled=True),
        Piece("\n", sampled=False),
    ]


def system(opening: str, signatures: Sequence[str]) -> Piece:
    tools = "Tools: " + " ".join(signatures)
    return message("system", f"{opening}\n{tools}" if opening else tools)


def lookup(rng: random.Random) -> Trace:
    """Two hops: a field's value names the country, another field of that country is the answer."""
    fields = rng.sample(FIELDS, 4)
    countries = [" ".join(word(rng) for _ in range(rng.choice((1, 1, 1, 2)))) for _ in range(5)]
    world = {(country, field): value(rng) for country in countries for field in fields}
    country, bridge, target = countries[0], fields[0], fields[1]
    clue, answer = world[country, bridge], world[country, target]
    find, read, tell = rng.choice(FIND), rng.choice(READ), rng.choice(TELL)
    find_arg, read_arg, tell_arg = rng.choice(FIND_ARGUMENT), rng.choice(READ_ARGUMENT), rng.choice(TELL_ARGUMENT)

    def result_lines(wanted: tuple[str, str]) -> str:
        others = rng.sample([key for key in world if key != wanted], 2)
        keys = [wanted, *others]
        if rng.random() < 0.3:
            rng.shuffle(keys)
        return "\n".join(f"{i}. {c} / {f}: {world[c, f][:60]}" for i, (c, f) in enumerate(keys, 1))

    question = rng.choice(
        (
            f"What is the {target.lower()} of the country whose {bridge.lower()} is {clue}?",
            f"Which {target.lower()} has the country with {bridge.lower()} {clue}?",
            f"{bridge}: {clue}. {target} of that country?",
            f"Name the {target.lower()} of the place whose {bridge.lower()} is {clue}.",
        )
    )
    trace = [
        system(rng.choice(SYSTEMS), (f"{find}({find_arg})", f"{read}({read_arg})", f"{tell}({tell_arg})")),
        message("user", question),
        *tool_call(find, {find_arg: f"{bridge.lower()} {clue}"}),
        message("tool", result_lines((country, bridge))),
    ]
    if rng.random() < 0.15:  # the second hop by search instead of by title
        trace += [
            *tool_call(find, {find_arg: f"{country} {target.lower()}"}),
            message("tool", result_lines((country, target))),
        ]
    else:
        trace += [
            *tool_call(read, {read_arg: f"{country} / {target}"}),
            message("tool", f"{country} / {target}: {answer}"),
        ]
    return [*trace, *tool_call(tell, {tell_arg: answer.split(" (")[0]})]


def ranking(rng: random.Random) -> Trace:
    """Three hops: of a country's neighbours, the one with the longest or shortest border, then a field of that one."""
    country, *neighbours = (names(rng, 1, rng.choice((1, 1, 2))) for _ in range(rng.randint(2, 6)))
    lengths = dict(zip(neighbours, rng.sample(range(10, rng.choice((100, 1000, 5000))), len(neighbours)), strict=True))
    trait, best = rng.choice((("longest", max), ("shortest", min)))
    neighbour = best(lengths, key=lambda name: lengths[name])
    target, answer = rng.choice(FIELDS), value(rng)
    listed = f"{country} / Border countries: " + ", ".join(f"{n} {km:,} km" for n, km in sorted(lengths.items()))
    others = [f"{names(rng, 1, 2)} / {rng.choice(('Border countries', *FIELDS))}: {value(rng)[:60]}" for _ in range(2)]
    lines = [listed[:60], *others]
    find, read, tell = rng.choice(FIND), rng.choice(READ), rng.choice(TELL)
    find_arg, read_arg, tell_arg = rng.choice(FIND_ARGUMENT), rng.choice(READ_ARGUMENT), rng.choice(TELL_ARGUMENT)
    return [
        system(rng.choice(SYSTEMS), (f"{find}({find_arg})", f"{read}({read_arg})", f"{tell}({tell_arg})")),
        message(
            "user", f"Which of the border countries of {country} has the {trait} border? Give its {target.lower()}."
        ),
        *tool_call(find, {find_arg: f"border countries {country}"}),
        message("tool", "\n".join(f"{i}. {line}" for i, line in enumerate(lines, 1))),
        *tool_call(read, {read_arg: f"{country} / Border countries"}),
        message("tool", listed),
        *tool_call(read, {read_arg: f"{neighbour} / {target}"}),
        message("tool", f"{neighbour} / {target}: {answer}"),
        *tool_call(tell, {tell_arg: answer.split(" (")[0]}),
    ]


def recital(rng: random.Random) -> Trace:
    """A list of facts and questions about it: dense practice in copying."""
    facts = {f"{word(rng)} / {field}": value(rng) for field in rng.sample(FIELDS, rng.randint(3, 7))}
    trace = [message("tool", "\n".join(f"{key}: {text}" for key, text in facts.items()))]
    for key, text in rng.sample(sorted(facts.items()), 3):
        trace += [
            message("user", key),
            Piece("<|im_start|>assistant\n", sampled=False),
            Piece(f"{text}<|im_end|>", sampled=True),
            Piece("\n", sampled=False),
        ]
    return trace


def echo(rng: random.Random) -> Trace:
    """A stretch of text and the same stretch again: what teaches a small transformer to copy (Olsson et al. 2022)."""
    parts = [rng.choice((word, value, date, quantity))(rng) for _ in range(rng.randint(4, 16))]
    return _echoed(rng.choice((" ", ", ", "\n", " / ")).join(parts))


def short_echo(rng: random.Random) -> Trace:
    """An echo of a few names: copying is learnt fastest where there is little to look through."""
    return _echoed(names(rng, 3, 7)[:80])


def _echoed(text: str) -> Trace:
    return [
        message("user", text),
        Piece("<|im_start|>assistant\n", sampled=False),
        Piece(f"{text}<|im_end|>", sampled=True),
        Piece("\n", sampled=False),
    ]


def short_echoes(seed: int) -> Iterator[Trace]:
    """An endless stream of short echoes: the first lesson."""
    rng = random.Random(seed)  # noqa: S311 - invented text, not secrets
    while True:
        yield short_echo(rng)


def traces(seed: int, code: Sequence[Trace], code_share: float) -> Iterator[Trace]:
    """An endless mixture of every kind; `code_share` of them are repairs, drawn from `code`."""
    rng = random.Random(seed)  # noqa: S311 - invented text, not secrets
    kinds = (lookup, ranking, recital, echo, lambda _: rng.choice(code))
    shares = (*((1 - code_share) * share for share in SHARES), code_share)
    while True:
        yield rng.choices(kinds, shares)[0](rng)
