"""Questions over Debian's packages: a package found by its description, its dependencies joined by section or maintainer."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from sandboxes.problems.search.documents.prove import Draft, Entities
from sandboxes.problems.search.drafts import only

TARGETS = ("Installed size", "Version", "Maintainer", "Source", "Description")
SELECTORS = {"Section": "is in section", "Maintainer": "is maintained by"}
MOST_READ = 5  # dependencies that a question may have looked at
DESCRIPTION_CHARS = 70


def families(packages: Entities) -> dict[str, Iterator[Draft]]:
    """Drafts by family, each repeatable in its order."""
    known = Known(packages)
    return {
        "selected": _selected(known),
        "compared": _compared(known),
        "chain": _chains(known),
        "reverse": _reverse(known),
    }


class Known:
    """The packages and what is asked of them again and again."""

    def __init__(self, packages: Entities) -> None:
        self.packages = packages
        self.described = Counter(fields["Description"].lower() for fields in packages.values())
        self.depends = {name: plain(fields.get("Depends", ""), packages) for name, fields in packages.items()}
        self.dependants: Mapping[str, list[str]] = _inverted(packages)

    def names(self, package: str) -> Iterator[tuple[str, str]]:
        """Ways to name a package in a question, each with the search that finds it."""
        yield f"the package {package}", package
        text = self.packages[package]["Description"]
        if self.described[text.lower()] == 1 and len(text) <= DESCRIPTION_CHARS and '"' not in text:
            yield f'the package described as "{text}"', text

    def fields(self, package: str, *without: str) -> Iterator[str]:
        held = self.packages[package]
        return (f for f in TARGETS if f in held and f not in without and held[f].lower() != package.lower())


def plain(text: str, packages: Entities) -> Sequence[str]:
    """Dependencies that can all be opened; none where the list has alternatives or a package from outside."""
    names = text.split(", ") if text else []
    return names if all(name in packages for name in names) else ()


def _inverted(packages: Entities) -> Mapping[str, list[str]]:
    """Package -> those that name it among their dependencies, alternatives included."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name, fields in packages.items():
        for dependency in dict.fromkeys(fields.get("Depends", "").replace(" | ", ", ").split(", ")):
            found[dependency].append(name)
    return found


def _selection(known: Known, package: str) -> Iterator[tuple[str, str, str]]:
    """(field, its value, dependency): the only one of the package's dependencies with that value."""
    depends = known.depends[package]
    if not 1 < len(depends) <= MOST_READ:
        return
    for field in SELECTORS:
        values = [known.packages[name].get(field, "") for name in depends]
        for name, value in zip(depends, values, strict=True):
            if value and "" not in values and values.count(value) == 1:
                yield field, value, name


def _opened(known: Known, package: str, field: str, chosen: str) -> tuple[tuple[str, str], ...]:
    """Reading the package's dependencies in order until the chosen one is recognised."""
    depends = known.depends[package]
    return tuple((name, field) for name in depends[: depends.index(chosen) + 1])


def _selected(known: Known) -> Iterator[Draft]:
    """ "Of the packages that P depends on, one is in section libs. What is its version?" """
    for package in known.packages:
        for field, value, chosen in _selection(known, package):
            for called, query in known.names(package):
                for target in known.fields(chosen, field):
                    yield Draft(
                        template=f"selected/{field.lower()}",
                        question=f"Of the packages that {called} depends on, one {SELECTORS[field]} {value}. "
                        f"What is its {asked(target)}?",
                        queries=((query, package),),
                        reads=((package, "Depends"), *_opened(known, package, field, chosen), (chosen, target)),
                        subjects=(package, chosen),
                    )


def _compared(known: Known) -> Iterator[Draft]:
    """ "Of the packages that P depends on, which has the largest installed size? Give its maintainer." """
    for package, depends in known.depends.items():
        sizes = {
            n: kilobytes(known.packages[n]["Installed size"]) for n in depends if "Installed size" in known.packages[n]
        }
        if not 1 < len(sizes) == len(depends) <= MOST_READ:
            continue
        for trait, best in (("largest", max), ("smallest", min)):
            winner = only(sizes, best)
            for called, query in known.names(package) if winner else ():
                for target in known.fields(winner or "", "Installed size"):
                    yield Draft(
                        template=f"compared/{trait}",
                        question=f"Of the packages that {called} depends on, which has the {trait} installed size? "
                        f"Give its {asked(target)}.",
                        queries=((query, package),),
                        reads=(
                            (package, "Depends"),
                            *((name, "Installed size") for name in depends),
                            (winner or "", target),
                        ),
                        subjects=(package, winner or ""),
                        compared=True,
                    )


def _chains(known: Known) -> Iterator[Draft]:
    """Three documents or more: of a dependency that is told by its section, the only dependency."""
    for package in known.packages:
        for field, value, middle in _selection(known, package):
            for last in known.depends[middle] if len(known.depends[middle]) == 1 else ():
                for called, query in known.names(package) if last not in (package, *known.depends[package]) else ():
                    for target in known.fields(last):
                        yield Draft(
                            template=f"chain/{field.lower()}",
                            question=f"Of the packages that {called} depends on, one {SELECTORS[field]} {value}. "
                            f"It depends on one package only. What is the {asked(target)} of that one?",
                            queries=((query, package),),
                            reads=(
                                (package, "Depends"), *_opened(known, package, field, middle),
                                (middle, "Depends"), (last, target),
                            ),
                            subjects=(package, last, middle),
                        )  # fmt: skip


def _reverse(known: Known) -> Iterator[Draft]:
    """Against the arrow: the only package that depends on P, then another one of its dependencies."""
    for package, dependants in known.dependants.items():
        if package not in known.packages or len(dependants) != 1:
            continue
        above = dependants[0]
        for field, value, chosen in _selection(known, above):
            for target in known.fields(chosen, field) if chosen != package else ():
                yield Draft(
                    template=f"reverse/{field.lower()}",
                    question=f"Exactly one package in this collection depends on {package}. Of its other dependencies, one "
                    f"{SELECTORS[field]} {value}. What is its {asked(target)}?",
                    queries=((f"depends {package}", above),),
                    reads=((above, "Depends"), *_opened(known, above, field, chosen), (chosen, target)),
                    subjects=(above, chosen, package),
                )


def asked(field: str) -> str:
    """A field as a question has it."""
    return "source package" if field == "Source" else field.lower()


def kilobytes(text: str) -> float:
    """ "1,234 kB" as a number."""
    return float(text.removesuffix(" kB").replace(",", ""))
