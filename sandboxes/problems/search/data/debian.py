"""Make `debian.json.gz` from the package lists of Debian 12 "bookworm", main, amd64, point release 12.15.

    apt-get update
    python -m sandboxes.problems.search.data.debian [PACKAGES_FILE]

Without a file the list is read from apt's own folder. Its SHA-256 is checked, the output is byte for byte repeatable.
Kept are facts and the one-line synopsis. A maintainer is kept where it is a team: a person's name is nobody's training data.
"""

import gzip
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

LISTS = Path("/var/lib/apt/lists")
LIST = "*_dists_bookworm_main_binary-amd64_Packages*"
PACKAGES_SHA256 = "515e692f2c4121c6fcec444ef100cc18f79a991910615f3a88c8b7becfc94d2f"
TARGET = Path(__file__).with_name("debian.json.gz")

SHARE = 0.08  # of the source packages: their packages are the seeds
SEED_DEPENDENCIES = 8  # a seed has at least one and at most so many
TEAM = re.compile(
    r"\b(team|group|maintainers?|task force|project|developers|packagers|packaging|strike force)\b", re.IGNORECASE
)

Stanza = Mapping[str, str]


def stanzas(packages: str) -> Iterator[Stanza]:
    """The packages of a list in Debian's control format; continued lines are left out."""
    for block in packages.split("\n\n"):
        lines = (line.split(": ", 1) for line in block.splitlines() if ": " in line and not line.startswith(" "))
        if found := {name: value.strip() for name, value in lines}:
            yield found


def source(stanza: Stanza) -> str:
    return stanza.get("Source", stanza["Package"]).split()[0]


def team(stanza: Stanza) -> str:
    """The maintainer's name without its address, or nothing where it is a person."""
    name = re.sub(r"\s*<.*", "", stanza["Maintainer"]).strip('" ')
    return name if TEAM.search(name) else ""


def relations(stanza: Stanza, field: str) -> list[str]:
    """The packages of a dependency field without versions and architectures; alternatives as "a | b"."""
    found = []
    for term in stanza.get(field, "").split(","):
        names = [re.sub(r"[\s(:\[].*", "", name.strip()) for name in term.split("|") if name.strip()]
        if names:
            found.append(" | ".join(dict.fromkeys(names)))
    return list(dict.fromkeys(found))


def chosen(archive: Mapping[str, Stanza]) -> set[str]:
    """A share of the team-maintained packages with a few plain dependencies, and what they depend on."""

    def is_seed(stanza: Stanza) -> bool:
        depends = relations(stanza, "Depends")
        drawn = int(hashlib.sha256(source(stanza).encode()).hexdigest()[:8], 16) < SHARE * 2**32
        return (
            drawn
            and bool(team(stanza))
            and 1 <= len(depends) <= SEED_DEPENDENCIES
            and all(name in archive for name in depends)
        )

    seeds = {name for name, stanza in archive.items() if is_seed(stanza)}
    return seeds | {name for seed in seeds for name in relations(archive[seed], "Depends")}


def fields(stanza: Stanza) -> dict[str, str]:
    """Field title -> text of one package, in the order in which its document shows them."""
    found = {
        "Description": stanza["Description"],
        "Section": stanza["Section"],
        "Source": source(stanza),
        "Version": stanza["Version"],
        "Installed size": f"{int(stanza['Installed-Size']):,} kB" if "Installed-Size" in stanza else "",
        "Maintainer": team(stanza),
        "Depends": ", ".join(relations(stanza, "Depends")),
        "Recommends": ", ".join(relations(stanza, "Recommends")),
    }
    return {title: text for title, text in found.items() if text}


def extract(packages: str) -> dict[str, dict[str, str]]:
    """Package -> field title -> text, sorted."""
    archive = {stanza["Package"]: stanza for stanza in stanzas(packages)}
    return {name: fields(archive[name]) for name in sorted(chosen(archive))}


def read(path: Path) -> bytes:
    """A package list, unpacked by apt where it is packed."""
    if path.suffix in ("", ".txt"):
        return path.read_bytes()
    return subprocess.run(["/usr/lib/apt/apt-helper", "cat-file", path], capture_output=True, check=True).stdout


def main() -> None:
    paths = [Path(name) for name in sys.argv[1:]] or sorted(LISTS.glob(LIST))
    if not paths:
        sys.exit(f"no package list {LIST} in {LISTS}: run apt-get update on Debian 12, or name a file")
    packages = read(paths[0])
    found = hashlib.sha256(packages).hexdigest()
    if found != PACKAGES_SHA256:
        sys.exit(f"{paths[0].name} is not the list of 12.15: SHA-256 is {found}, wanted {PACKAGES_SHA256}")
    raw = json.dumps(extract(packages.decode()), ensure_ascii=False, indent=0, separators=(",", ":")).encode()
    TARGET.write_bytes(gzip.compress(raw, mtime=0))
    print(f"{TARGET.name}: {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
