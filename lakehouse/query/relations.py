"""The SQL files: one relation each, and what each reads.

`sql/staging`, `sql/marts` and the tables that need no staging make the schema `main`; every other folder is a schema of its
own, and `bronze.<table>` is a table as written.
"""

import graphlib
import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lakehouse.schema import TABLES

SQL = Path(__file__).parent.parent / "sql"
SCHEMAS = {
    "staging": "main",
    "marts": "main",
    "filters": "filters",
    "radar": "radar",
    "checks": "checks",
    "queries": "queries",
}
_REFERENCE = re.compile(r"\b(?:from|join)\s+([a-z_]+(?:\.(?:[a-z_]+|\"[a-z_@0-9]+\"))?)")


@dataclass(frozen=True)
class Relation:
    """One SQL file. `header` holds the `key: value` lines of its opening comment."""

    name: str  # qualified: "main.tokens", "rubrics.swe"
    sql: str
    header: Mapping[str, str]
    reads: frozenset[str]  # qualified names of the relations and bronze tables it is made of, directly

    @property
    def quoted(self) -> str:
        """The name as SQL takes it: `rubrics."swe@2"`."""
        schema, name = self.name.split(".")
        return f'{schema}."{name}"'


@cache
def relations() -> tuple[Relation, ...]:
    """Every relation above the bronze tables, each after the ones it reads."""
    found = {
        f"{schema}.{path.stem}": _definition(part, path.read_text())
        for part, schema in SCHEMAS.items()
        for path in sorted((SQL / part).glob("*.sql"))
    }
    for name in TABLES:  # a table that needs no staging is shown as it is
        found.setdefault(f"main.{name}", f"from bronze.{name}")
    known = found.keys() | {f"bronze.{name}" for name in TABLES}
    reads = {name: frozenset(_reads(name, sql) & known) for name, sql in found.items()}
    order = graphlib.TopologicalSorter({name: there & found.keys() for name, there in reads.items()})
    return tuple(
        Relation(name, found[name].rstrip().rstrip(";"), header(found[name]), reads[name])
        for name in order.static_order()
    )


@cache
def _by_name() -> dict[str, Relation]:
    return {known.name: known for known in relations()}


def relation(name: str) -> Relation:
    """One relation by its qualified name. KeyError names those of its schema."""
    if name in _by_name():
        return _by_name()[name]
    schema = name.split(".")[0]
    there = ", ".join(r.name for r in relations() if r.name.startswith(f"{schema}."))
    raise KeyError(f"no relation {name!r}; there are {there}")


def behind(names: Iterable[str]) -> tuple[list[Relation], set[str]]:
    """What these names are made of, themselves included: relations, each after what it reads, and names of tables.

    Names that are no relation (of a CTE, of a temporary table) are passed over.
    """
    wanted: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in wanted:
            wanted.add(name)
            pending += _by_name()[name].reads if name in _by_name() else ()
    tables = {name.removeprefix("bronze.") for name in wanted if name.startswith("bronze.")}
    return [known for known in relations() if known.name in wanted], tables & TABLES.keys()


def step(sql: str, before: str) -> str:
    """The episodes that a filter's SQL leaves out of the relation `before`, each with one reason.

    The SQL reads `before` without the shaped reward: a filter goes by the outcome.
    """
    return f"""with before as (
    select * exclude (reward) from {before}
)

select episode_id, min(reason) as reason
from (
{sql.rstrip().rstrip(";")}
)
where reason is not null
group by episode_id"""  # noqa: S608 - SQL made of SQL


def _definition(part: str, sql: str) -> str:
    """A file's relation. One that is a step of selections, alone: what it makes of every episode in question."""
    if part != "filters" or "keeps" not in header(sql):
        return sql
    comment = itertools.takewhile(lambda line: line.startswith("--"), sql.splitlines())
    alone = f"""with eligible as materialized (
    from filters.eligible
)

select
    eligible.* replace (coalesce(left_out.reason, eligible.reason) as reason),
    coalesce(left_out.reason, eligible.reason) is null as keep
from eligible
left join (
{step(sql, "eligible")}
) as left_out using (episode_id)"""  # noqa: S608 - SQL made of SQL
    return "\n".join([*comment, alone])


def header(sql: str) -> dict[str, str]:
    """`-- key: value` lines at the top of a file."""
    lines = itertools.takewhile(lambda line: line.startswith("--"), sql.splitlines())
    pairs = (line[2:].split(":", 1) for line in lines if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def _reads(name: str, sql: str) -> set[str]:
    """The relations a file names after FROM or JOIN, qualified, without itself (an import CTE may bear its name)."""
    code = "\n".join(line.split("--")[0] for line in sql.lower().splitlines())
    named = (found.replace('"', "") if "." in found else f"main.{found}" for found in _REFERENCE.findall(code))
    return set(named) - {name}
