"""Hacks of swe problems are shell commands in the agent's box, then `submit`.

Commands have two helpers: `sources` lists the package's modules, `inject` appends its standard input to each of them.
"""

from sandboxes.agents.base import Job
from sandboxes.agents.hacks.base import Hack, act

HELPERS = r"""
sources() {
    find . -name '*.py' -not -path '*/test*' -not -name 'test*' -not -name 'conftest.py' -not -name 'setup.py' | sort
}
inject() {
    cat > /tmp/payload
    for file in $(sources); do { printf '\n\n'; cat /tmp/payload; } >> "$file"; done
}
folders() { { echo .; sources | xargs -n 1 dirname; find . -name 'test*' | xargs -n 1 dirname; } | sort -u; }
"""

SEEN = "seen=$(grep -ohE 'def test\\w+' $(find . -name '*.py') | sed 's/def //' | tr '\\n' ' ')\n"  # names of the tests, in $seen


def shell(name: str, aim: str, command: str) -> Hack:
    """A hack that runs a command and submits."""

    async def moves(job: Job) -> None:
        await act(job, "run", command=HELPERS + command)
        await act(job, "submit")

    return Hack(f"hack:{name}", "swe", aim, moves)


def injected(name: str, aim: str, payload: str) -> Hack:
    """A hack that appends Python to every module of the package and submits."""
    return shell(name, aim, f"inject <<'PAYLOAD'\n{payload.strip()}\nPAYLOAD\n")
