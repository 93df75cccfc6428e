"""The corpora that ship with us, and the problems over them."""

import gzip
import json
from functools import lru_cache
from importlib import resources

from lakehouse.records import Problem
from sandboxes.problems.search import corpus as passages
from sandboxes.problems.search.answers import accepted
from sandboxes.problems.search.documents import countries, packages
from sandboxes.problems.search.documents.corpus import Corpus
from sandboxes.problems.search.documents.prove import Entities, generate

SEED = 0
SIZES = {"countries": 900, "debian": 2400}


def entities(name: str) -> Entities:
    """The fields of a shipped corpus, {entity: {field: text}}."""
    if name == "countries":
        return passages.load().countries
    packed = resources.files("sandboxes.problems.search.data").joinpath("debian.json.gz").read_bytes()
    found: Entities = json.loads(gzip.decompress(packed))
    return found


@lru_cache(maxsize=2)
def corpus(name: str) -> Corpus:
    """A shipped corpus by name: `countries` (The World Factbook, a page per country) or `debian` (a page per package)."""
    source, licence = {
        "countries": (passages.SOURCE, passages.LICENCE),
        "debian": ("Debian 12.15 main amd64", "package metadata (facts; synopses under each package's free licence)"),
    }[name]
    return Corpus.of_fields(entities(name), name=name, source=source, licence=licence)


def build_countries(size: int = SIZES["countries"], seed: int = SEED) -> list[Problem]:
    """Problems over whole pages of The World Factbook."""
    held = entities("countries")
    return generate(corpus("countries"), held, countries.families(held), size=size, seed=seed, forms=accepted)


def build_debian(size: int = SIZES["debian"], seed: int = SEED) -> list[Problem]:
    """Problems over Debian's packages; those of one source package are on one side of the split."""
    held = entities("debian")
    families = packages.families(held)

    def source(package: str) -> str:
        return held[package]["Source"]

    return generate(corpus("debian"), held, families, size=size, seed=seed, forms=lambda text: [text], group=source)
