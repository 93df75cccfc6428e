"""What SQL may do on a connection that only reads: the parsed statement decides, before anything runs."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import duckdb

from lakehouse.query.errors import NotAllowed, QueryError, explained

# Table functions that make rows of their arguments, or describe the connection. All others read or write files, change
# settings, or run SQL that nobody has looked at.
_FUNCTIONS = re.compile(
    r"unnest|range|generate_series|repeat|repeat_row|json_each|json_tree|histogram|histogram_values|summary|"
    r"duckdb_(columns|constraints|databases|functions|keywords|schemas|settings|tables|types|variables|views)|"
    r"(pragma_)?(table_info|show|version)|pg_timezone_names|show_\w+"
)
_TABLE = re.compile(r"[\w@]+")  # no slash, dot or star: a name with one would be a file
_DESCRIBES = re.compile(r"duckdb_|pragma_|show|table_info|information_schema|pg_catalog|sqlite_")
_TEMPORARY = re.compile(
    r"create\s+(?:or\s+replace\s+)?temp(?:orary)?\s+(?:table|view)\s+(?:if\s+not\s+exists\s+)?\"?\w+\"?\s+as\s+(?P<read>.+)",
    re.I | re.S,
)
_EXPLAIN = re.compile(r"explain\s+(?:analyze\s+|\((?:analyze|format)[\w\s,]*\)\s*)?(?P<read>.+)", re.I | re.S)
_VARIABLE = re.compile(r"(?:set\s+variable\s+\w+\s*(?:=|to)\s*(?P<value>.+)|reset\s+variable\s+\w+)", re.I | re.S)
_WITHIN = {duckdb.StatementType.EXPLAIN: _EXPLAIN, duckdb.StatementType.CREATE: _TEMPORARY}
_COMMENTS = re.compile(r"\s*(?:--[^\n]*(?:\n|$)|/\*.*?\*/)", re.S)


@dataclass(frozen=True)
class Named:
    """What the statements name, lower case and qualified. `everything`: they look at what the connection has."""

    relations: frozenset[str]
    everything: bool


@lru_cache(maxsize=512)
def admitted(sql: str) -> Named:
    """What SQL of one or more statements names. NotAllowed where one does more than read.

    Reading is SELECT in all its forms (also DESCRIBE, SHOW, SUMMARIZE), EXPLAIN, temporary tables and views made of a
    SELECT, and variables. QueryError where it cannot be parsed.
    """
    relations: set[str] = set()
    everything = False
    for read in _reads(sql):
        for kind, schema, name in _references(_tree(read)):
            if kind == "function" and not _FUNCTIONS.fullmatch(name):
                raise NotAllowed(
                    f"{name}(...) is not for this connection, which reads the lake's tables and no files: "
                    "read other data in Python and give it a name with `register`"
                )
            if kind == "table" and not (_TABLE.fullmatch(name) and _TABLE.fullmatch(schema or "main")):
                raise NotAllowed(
                    f"{name!r} is no name of a table: this connection reads the lake's tables and no files, whatever the path"
                )
            everything = everything or kind == "show" or bool(_DESCRIBES.match(schema or name))
            relations.add(f"{schema or 'main'}.{name}".lower())
    return Named(frozenset(relations), everything)


def _reads(sql: str) -> Iterator[str]:
    """The SELECT within each statement. NotAllowed where there is none."""
    kinds = duckdb.StatementType
    try:
        statements = _parser().cursor().extract_statements(sql)
    except duckdb.PermissionException as error:  # IMPORT DATABASE opens files while it is parsed
        raise NotAllowed(f"this connection only reads: {error}") from error
    except duckdb.Error as error:
        raise QueryError(explained(error)) from error
    for statement in statements:
        text = _bare(statement.query)
        if statement.type == kinds.SELECT:
            yield text
        elif statement.type in _WITHIN and (found := _WITHIN[statement.type].fullmatch(text)):
            yield found["read"]
        elif statement.type == kinds.SET and (found := _VARIABLE.fullmatch(text)):
            yield f"select {found['value'] or 'null'}"
        else:
            what = text.split(None, 1)[0].upper() if text else "PIVOT without IN"
            raise NotAllowed(
                f"{what} is not for this connection, which only reads: it takes SELECT, DESCRIBE, SHOW, SUMMARIZE, EXPLAIN, "
                "SET VARIABLE and CREATE TEMP TABLE ... AS SELECT. To keep a result, take it into Python: "
                "`.pl().write_parquet(...)`, or `lakeloop query --json`"
            )


def _bare(sql: str) -> str:
    """The statement without comments before it and the semicolon after it."""
    while found := _COMMENTS.match(sql):
        sql = sql[found.end() :]
    return sql.strip().rstrip(";").rstrip()


def _tree(read: str) -> Any:
    """DuckDB's own parse tree of a SELECT."""
    text = read.replace("'", "''")
    (serialised,) = _parser().cursor().execute(f"select json_serialize_sql('{text}')").fetchone() or ("{}",)
    tree = json.loads(serialised)
    if not tree.get("error"):
        return tree["statements"]
    if tree.get("error_type") == "not implemented":
        raise NotAllowed(
            f"{read.split(None, 1)[0].upper()} cannot be looked into before it runs, so it is not for this connection: "
            "write it as a SELECT (a pivot as `from t pivot (sum(x) for y in (...))`)"
        )
    raise QueryError(explained(f"{tree['error_type']} error: {tree['error_message']}".capitalize()))


def _references(node: Any) -> Iterator[tuple[str, str, str]]:
    """("table", schema, name), ("function", "", name) and ("show", "", "") anywhere in a parse tree."""
    if isinstance(node, list):
        for part in node:
            yield from _references(part)
        return
    if not isinstance(node, dict):
        return
    match node.get("type"):
        case "BASE_TABLE":
            if node["catalog_name"] not in ("", "system", "temp"):
                raise NotAllowed(f"no catalog {node['catalog_name']!r} on this connection: name tables as `episodes`")
            yield "table", node["schema_name"], node["table_name"]
        case "TABLE_FUNCTION":
            yield "function", "", node["function"]["function_name"].lower()
        case "SHOW_REF":
            yield "show", "", ""
    for part in node.values():
        yield from _references(part)


@cache
def _parser() -> duckdb.DuckDBPyConnection:
    """A DuckDB that parses and never runs anything of others; it can open no file."""
    parser = duckdb.connect()
    parser.execute("set enable_external_access = false; set lock_configuration = true")
    return parser
