"""What can be wrong with a query; each message names a cause and a remedy."""

import duckdb

NO_ROWS = "this SQL gives no rows: ask with SELECT, or FROM a table; `lakeloop tables` lists them"


class QueryError(ValueError):
    """DuckDB refused the SQL, or could not read a table; the message holds its own words."""


class NotAllowed(QueryError):
    """SQL that does more than read the lake."""


class Unreadable(QueryError):
    """A file of the lake is damaged or gone; the SQL is not to blame."""


class UnknownPin(LookupError):
    """A table has no such version, or no training set of this name pinned any."""


def refused(error: duckdb.Error) -> QueryError:
    """DuckDB's words as an error of ours, with what to do."""
    # What a damaged page makes its reader say is of no class of its own, and names no file.
    if type(error) is duckdb.Error or isinstance(error, duckdb.IOException) or ".parquet" in str(error):
        return Unreadable(f"{error}\nA file of the lake is damaged or gone: `lakeloop checks --whole` says which.")
    return QueryError(explained(error))


def explained(error: duckdb.Error | str) -> str:
    """What DuckDB says of SQL, and what to do."""
    return f"{error}\n`lakeloop tables` lists what there is."
