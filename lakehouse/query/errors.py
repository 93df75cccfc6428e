"""What can be wrong with a query; each message names a cause and a remedy."""

import duckdb


class QueryError(ValueError):
    """DuckDB refused the SQL, or could not read a table; the message holds its own words."""


class NotAllowed(QueryError):
    """SQL that does more than read the lake."""


class UnknownPin(LookupError):
    """A table has no such version, or no training set of this name pinned any."""


def explained(error: duckdb.Error | str) -> str:
    """DuckDB's words, and what to do."""
    if isinstance(error, duckdb.IOException) or ".parquet'" in str(error):
        return f"{error}\nA file of the lake is damaged or gone: `lakeloop checks` says which."
    return f"{error}\n`lakeloop tables` lists what there is."
