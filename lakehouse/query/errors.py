"""What can be wrong with a query; each message names a cause and a remedy."""


class QueryError(ValueError):
    """DuckDB refused the SQL, or could not read a table; the message holds its own words."""


class NotAllowed(QueryError):
    """SQL that does more than read the lake."""


class UnknownPin(LookupError):
    """A table has no such version, or no training set of this name pinned any."""
