"""An erasure in a server's Postgres database: what is found in any column of any table, and overwriting it.

A database is reached by its URL, table by table and row by row, so that its size does not matter. While a table's rows are
overwritten nobody else writes to it, and then it is rewritten (VACUUM FULL), since Postgres keeps the old rows otherwise.
What was written ahead or backed up by then is its operator's.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import asyncpg

from lakehouse.governance.scan import Scanned, Search

PATIENCE_S = 30.0  # for a connection, and for a lock that somebody else holds
STATEMENT_S = 600.0  # for one table's rewriting
AT_A_TIME = 500  # rows
# Ordinary tables of any schema with those columns that text can be in: strings, arrays, and types such as json and bytea.
TABLES = """
    select
        format('%I.%I', schema.nspname, held.relname) as name,
        array_agg(quote_ident(attname) order by attnum) as columns,
        array_agg(format_type(atttypid, atttypmod) order by attnum) as types
    from pg_class as held
    join pg_namespace as schema on schema.oid = held.relnamespace
    join pg_attribute on attrelid = held.oid and attnum > 0 and not attisdropped and attgenerated = ''
    join pg_type on pg_type.oid = atttypid and typcategory in ('S', 'A', 'U', 'Z')
    where held.relkind = 'r' and schema.nspname !~ '^(pg_|information_schema$)'
    group by 1
    order by 1
"""


class Unreachable(ConnectionError):
    """A database that must be searched does not answer; the message names the server whose it is, not its password."""


@dataclass(frozen=True)
class Table:
    """`columns` are quoted."""

    name: str
    columns: Sequence[str]
    types: Sequence[str]

    @property
    def selected(self) -> str:
        # bytea as it is, all else as the text that it is written as.
        shown = [
            column if kind == "bytea" else f"{column}::text"
            for column, kind in zip(self.columns, self.types, strict=True)
        ]
        return f"select ctid::text, {', '.join(shown)} from {self.name}"  # noqa: S608 - names are quoted by the server


@dataclass(frozen=True)
class Database:
    """The database of `owner`, such as Prefect."""

    owner: str
    url: str

    def look(self, search: Search, scanned: Scanned) -> None:
        """Add what is found, by table and column. Unreachable."""
        asyncio.run(self._each(lambda connection, table: self._look(connection, table, search, scanned)))

    def blank(self, search: Search, scanned: Scanned) -> list[str]:
        """Overwrite what is found in the tables where `scanned` says that something is; their columns. Unreachable."""
        done: list[str] = []

        async def one(connection: asyncpg.Connection, table: Table) -> None:
            places = [place for place in self._places(table) if place in scanned.found]
            if places:
                await _blank(connection, table, search)
                done.extend(places)

        asyncio.run(self._each(one))
        return done

    async def _each(self, work: Callable[[asyncpg.Connection, Table], Awaitable[None]]) -> None:
        async with self._connected() as connection:
            for row in await connection.fetch(TABLES):
                await work(connection, Table(row["name"], row["columns"], row["types"]))

    async def _look(self, connection: asyncpg.Connection, table: Table, search: Search, scanned: Scanned) -> None:
        scanned.files += 1
        places = self._places(table)
        async with connection.transaction(readonly=True):
            async for row in connection.cursor(table.selected, prefetch=AT_A_TIME):
                for place, raw in zip(places, _raw(row), strict=True):
                    scanned.bytes += len(raw)
                    scanned.add(place, search(raw))

    def _places(self, table: Table) -> list[str]:
        return [f"{self.owner}'s database: {table.name}.{column}" for column in table.columns]

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[asyncpg.Connection]:
        plain = re.sub(r"^postgres(ql)?(\+\w+)?://", "postgresql://", self.url)  # without SQLAlchemy's driver
        settings = {"lock_timeout": f"{PATIENCE_S:.0f}s", "statement_timeout": f"{STATEMENT_S:.0f}s"}
        try:
            connection = await asyncpg.connect(plain, timeout=PATIENCE_S, server_settings=settings)
        except (OSError, TimeoutError, asyncpg.PostgresError) as error:
            raise Unreachable(
                f"{self.owner}'s database does not let itself be searched: {type(error).__name__}. Start it, or mend the URL in "
                f"LAKELOOP_{self.owner.upper()}_DATABASE, then repeat the erasure"
            ) from None  # the URL holds a password
        try:
            yield connection
        finally:
            await connection.close(timeout=PATIENCE_S)


def is_postgres(url: str) -> bool:
    """Whether a database URL, as SQLAlchemy takes it, is of Postgres."""
    return re.match(r"postgres(ql)?(\+\w+)?://", url) is not None


async def _blank(connection: asyncpg.Connection, table: Table, search: Search) -> None:
    async with connection.transaction():
        await connection.execute(
            f"lock table {table.name} in share row exclusive mode"
        )  # or a row's place might change
        dirty = []
        async for row in connection.cursor(table.selected, prefetch=AT_A_TIME):
            raw = _raw(row)
            if any(map(search, raw)):
                dirty.append((row[0], raw))
        for place, raw in dirty:
            await _overwrite(connection, table, place, raw, search)
    await connection.execute(f"vacuum full {table.name}")


async def _overwrite(
    connection: asyncpg.Connection, table: Table, place: str, raw: Sequence[bytes], search: Search
) -> None:
    sets, values = [], []
    for column, kind, held in zip(table.columns, table.types, raw, strict=True):
        if search(held):
            clean = search.blanked(held)
            values.append(clean if kind == "bytea" else clean.decode())
            sets.append(
                f"{column} = ${len(values)}::{kind}" if kind == "bytea" else f"{column} = ${len(values)}::text::{kind}"
            )
    values.append(place)
    where = f"where ctid = ${len(values)}::text::tid"
    await connection.execute(f"update {table.name} set {', '.join(sets)} {where}", *values)  # noqa: S608 - as above


def _raw(row: asyncpg.Record) -> list[bytes]:
    """The values of a row, without its place."""
    return [value if isinstance(value, bytes) else (value or "").encode() for value in tuple(row)[1:]]
