"""Questions over whole pages of The World Factbook: a country found by a value that only it has, then its neighbours."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from sandboxes.problems.search.answers import day_of, leading, without_measure
from sandboxes.problems.search.corpus import words
from sandboxes.problems.search.documents.prove import Draft, Entities
from sandboxes.problems.search.drafts import BORDERS, NEIGHBOUR_TARGETS, neighbours, only

BRIDGES = ("Capital", "Internet code", "Nationality", "Highest point", "Anthem")
TARGETS = (
    *NEIGHBOUR_TARGETS,
    "Lowest point",
    "Coastline",
    "Independence",
    "National holiday",
    "Median age",
    "Road length",
)
MOST_COMPARED = 5

# What neighbours are compared by: (field, words for the most, words for the least).
TRAITS = (
    ("Population", "has the largest population", "has the smallest population"),
    ("Area", "is the largest by area", "is the smallest by area"),
    ("Median age", "has the highest median age", "has the lowest median age"),
    ("Airport count", "has the most airports", "has the fewest airports"),
    ("Independence", "became independent last", "became independent first"),
)
_UNITS = {"million": 1e6, "billion": 1e9}


def families(countries: Entities) -> dict[str, Iterator[Draft]]:
    """Drafts by family, each repeatable in its order."""
    named = _named(countries)
    return {
        "border": _borders(countries, named),
        "chain": _chains(countries, named),
        "neighbours": _neighbours(countries, named),
        "three": _threes(countries, named),
    }


def _named(countries: Entities) -> dict[str, list[tuple[str, str]]]:
    """Country -> (field, value) by which a question can name it, since no other country has that value."""
    found: dict[str, list[tuple[str, str]]] = {country: [] for country in countries}
    for bridge in BRIDGES:
        values = {c: without_measure(leading(fields[bridge])) for c, fields in countries.items() if bridge in fields}
        holders = Counter(" ".join(words(value)) for value in values.values())
        for country, value in values.items():
            if words(value) and holders[" ".join(words(value))] == 1:
                found[country].append((bridge, value))
    return found


def _whose(bridge: tuple[str, str]) -> str:
    return f"the country whose {bridge[0].lower()} is {bridge[1]}"


def _query(bridge: tuple[str, str]) -> str:
    return f"{bridge[0].lower()} {bridge[1]}"


def _extremes(countries: Entities, country: str) -> Iterator[tuple[str, str]]:
    """(longest or shortest, the neighbour with that border), where the list reads cleanly and one alone has it."""
    lengths = neighbours(countries[country].get(BORDERS, ""))
    for trait, best in (("longest", max), ("shortest", min)):
        found = only(lengths, best) if len(lengths) > 1 else None
        if found is not None and found in countries:
            yield trait, found


def _borders(countries: Entities, named: Mapping[str, list[tuple[str, str]]]) -> Iterator[Draft]:
    """Two documents: "Of the neighbours of the country whose anthem is X, one has the longest border with it. ..." """
    for country in countries:
        for trait, neighbour in _extremes(countries, country):
            for bridge in named[country]:
                for field in _fields(countries, neighbour, bridge[0]):
                    yield Draft(
                        template=f"border/{trait}",
                        question=f"Which neighbour has the {trait} border with {_whose(bridge)}? Give its {field.lower()}.",
                        queries=((_query(bridge), country),),
                        reads=((country, bridge[0]), (country, BORDERS), (neighbour, field)),
                        subjects=(country, neighbour),
                    )


def _chains(countries: Entities, named: Mapping[str, list[tuple[str, str]]]) -> Iterator[Draft]:
    """Three documents: the neighbour's neighbour."""
    for country in countries:
        for first, middle in _extremes(countries, country):
            for second, last in _extremes(countries, middle):
                for bridge in named[country] if last != country else ():
                    for field in _fields(countries, last, bridge[0]):
                        yield Draft(
                            template=f"chain/{first}-{second}",
                            question=f"Take the neighbour with the {first} border with {_whose(bridge)}. Of that one's own "
                            f"neighbours, take the one with the {second} border. What is its {field.lower()}?",
                            queries=((_query(bridge), country),),
                            reads=((country, bridge[0]), (country, BORDERS), (middle, BORDERS), (last, field)),
                            subjects=(country, last, middle),
                        )


def _neighbours(countries: Entities, named: Mapping[str, list[tuple[str, str]]]) -> Iterator[Draft]:
    """A document per neighbour: "Of the neighbours of the country whose capital is X, which has the most airports? ..." """
    for country, fields in countries.items():
        around = list(neighbours(fields.get(BORDERS, "")))
        if not 1 < len(around) <= MOST_COMPARED or not all(name in countries for name in around):
            continue
        for turn, (trait, phrase, winner) in enumerate(_winners(countries, around)):
            for bridge in named[country][turn % 5 :][:1]:  # one way of naming the country each: there are plenty
                for field in _fields(countries, winner, trait):
                    yield Draft(
                        template=f"neighbours/{trait.lower()}",
                        question=f"Of the neighbours of {_whose(bridge)}, one {phrase}. What is its {field.lower()}?",
                        queries=((_query(bridge), country),),
                        reads=(
                            (country, bridge[0]),
                            (country, BORDERS),
                            *((name, trait) for name in around),
                            (winner, field),
                        ),
                        subjects=(country, winner),
                        compared=True,
                    )


def _threes(countries: Entities, named: Mapping[str, list[tuple[str, str]]]) -> Iterator[Draft]:
    """Three documents found by three searches: "One is the country whose ..., another ..., the third ... Which ..." """
    known = [country for country in countries if len(named[country]) > 1]
    step = len(known) // 3
    for index, country in enumerate(known):
        trio = [known[(index + turn * step) % len(known)] for turn in range(3)]
        bridges = [named[member][(index + turn) % len(named[member])] for turn, member in enumerate(trio)]
        for trait, phrase, winner in _winners(countries, trio):
            used = {bridge for bridge, _ in bridges}
            for field in (name for name in _fields(countries, winner, trait) if name not in used):
                about = ", ".join(f"{bridge.lower()} {value}" for bridge, value in bridges)
                yield Draft(
                    template=f"three/{trait.lower()}",
                    question=f"Three countries: {about}. Of them, one {phrase}. What is its {field.lower()}?",
                    queries=tuple((_query(bridge), member) for bridge, member in zip(bridges, trio, strict=True)),
                    reads=(*((member, trait) for member in trio), (winner, field)),
                    subjects=(country, *trio[1:]),
                    compared=True,
                )


def _fields(countries: Entities, country: str, *without: str) -> Iterator[str]:
    return (field for field in TARGETS if field in countries[country] and field not in without)


def _winners(countries: Entities, among: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """(field, phrase, country) wherever all have a value and one alone has the most or the least."""
    names = list(among)
    for trait, most, least in TRAITS:
        values = {name: number for name in names if (number := quantity(countries[name].get(trait, ""))) is not None}
        if len(values) == len(names):
            for phrase, best in ((most, max), (least, min)):
                if (winner := only(values, best)) is not None:
                    yield trait, phrase, winner


def quantity(text: str) -> float | None:
    """The number or the day that a field begins with, for comparing; None where it has neither."""
    start = leading(text)
    if day := day_of(start):
        return float(day.toordinal())
    number, *unit = start.split()[:2] or [""]
    try:
        return float(number.replace(",", "")) * _UNITS.get(unit[0] if unit else "", 1)
    except ValueError:
        return None
