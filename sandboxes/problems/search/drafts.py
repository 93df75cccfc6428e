"""Questions written from a corpus, not yet proved. Bridge questions find a country by a value that only it has;
border questions compare a country's neighbours first.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from sandboxes.problems.search.answers import leading, without_measure
from sandboxes.problems.search.corpus import PASSAGE_CHARS, Corpus, words

# Field that identifies a country -> difficulty of a question that starts from it.
BRIDGES = {"Capital": 0.2, "Internet code": 0.25, "Nationality": 0.25, "Highest point": 0.3, "Anthem": 0.35}
NEIGHBOUR_TARGETS = (
    "Capital", "Anthem", "Internet code", "Nationality", "Highest point", "Area", "Population", "Currency",
)  # fmt: skip
TARGETS = (
    *NEIGHBOUR_TARGETS, "Lowest point", "Coastline", "Independence", "National holiday", "Airport count",
    "Median age", "Phone code", "Road length",
)  # fmt: skip
BORDERS = "Border countries"
COMPARED = 4  # neighbours whose areas a question may have compared

_BORDER = re.compile(r"(?:^|, )([A-Z][^\d,()]*?) (\d[\d,]*(?:\.\d+)?) km(?=,|$)")
_SQ_KM = re.compile(r"(\d[\d,]*(?:\.\d+)?) sq km")


Path = tuple[tuple[str, str], ...]  # tools and their arguments, up to the opening of the target


@dataclass(frozen=True)
class Draft:
    """A question before it is proved. `countries` are those it is about, the one that names the problem first."""

    countries: tuple[str, ...]
    template: str
    question: str
    path: Path
    target: str  # passage title
    difficulty: float


def bridges(corpus: Corpus) -> Iterator[Draft]:
    """ "What is the internet code of the country whose capital is Lima?" """
    for bridge, difficulty in BRIDGES.items():
        values = {c: without_measure(leading(f[bridge])) for c, f in corpus.countries.items() if bridge in f}
        holders = Counter(" ".join(words(value)) for value in values.values())
        for country, value in values.items():
            if holders[" ".join(words(value))] != 1 or mentions(value, country):
                continue
            for field in TARGETS:
                if field != bridge and field in corpus.countries[country]:
                    target = f"{country} / {field}"
                    yield Draft(
                        countries=(country,),
                        template=f"bridge/{bridge.lower()}",
                        question=f"What is the {field.lower()} of the country whose {bridge.lower()} is {value}?",
                        path=(("search", f"{bridge.lower()} {value}"), ("open", target)),
                        target=target,
                        difficulty=difficulty,
                    )


def borders(corpus: Corpus) -> Iterator[Draft]:
    """ "Which of the border countries of Peru has the longest border? Give its capital." """
    for country, fields in corpus.countries.items():
        text = fields.get(BORDERS, "")
        lengths = neighbours(text)
        if not lengths or len(text) > PASSAGE_CHARS:
            continue
        look = (("search", f"border countries {country}"), ("open", f"{country} / {BORDERS}"))
        difficulty = 0.6 if len(lengths) == 1 else min(0.65 + 0.03 * len(lengths), 0.8)
        longest, shortest = only(lengths, max), only(lengths, min)
        yield from _about_neighbour(corpus, country, "has the longest border", longest, look, difficulty)
        yield from _about_neighbour(corpus, country, "has the shortest border", shortest, look, difficulty)
        areas = {name: area for name in lengths if (area := _area(corpus, name)) is not None}
        if 1 < len(areas) == len(lengths) <= COMPARED:
            path = (*look, *(("open", f"{name} / Area") for name in areas))
            yield from _about_neighbour(corpus, country, "is the smallest by area", only(areas, min), path, 0.95)


def _about_neighbour(
    corpus: Corpus,
    country: str,
    trait: str,
    neighbour: str | None,
    look: tuple[tuple[str, str], ...],
    difficulty: float,
) -> Iterator[Draft]:
    """One question for each field of the one neighbour that has the trait."""
    if neighbour is None:
        return
    for field in NEIGHBOUR_TARGETS:
        target = f"{neighbour} / {field}"
        if field in corpus.countries.get(neighbour, {}) and ("open", target) not in look:
            yield Draft(
                countries=(country, neighbour),
                template=f"border/{trait}",
                question=f"Which of the border countries of {country} {trait}? Give its {field.lower()}.",
                path=(*look, ("open", target)),
                target=target,
                difficulty=difficulty,
            )


def neighbours(text: str) -> dict[str, float]:
    """Border countries and lengths in km; empty where the list does not read cleanly."""
    found = {name: float(length.replace(",", "")) for name, length in _BORDER.findall(text)}
    return found if text.count(" km") == len(found) else {}


def mentions(text: str, phrase: str) -> bool:
    """Whether the text holds the phrase, word by word."""
    return f" {' '.join(words(phrase))} " in f" {' '.join(words(text))} "


def only(values: Mapping[str, float], best: Callable[[Iterable[float]], float]) -> str | None:
    """The key of the best value, or None where several share it."""
    extreme = best(values.values())
    holders = [name for name, value in values.items() if value == extreme]
    return holders[0] if len(holders) == 1 else None


def _area(corpus: Corpus, country: str) -> float | None:
    """In square kilometres."""
    found = _SQ_KM.match(corpus.countries.get(country, {}).get("Area", ""))
    return float(found[1].replace(",", "")) if found else None
