"""An erasure in a server's Postgres database: what is found in any column of any table, and overwriting it.

A database is reached by its URL, table by table and row by row, so that its size does not matter. While a table's rows are
overwritten nobody else writes to it. Postgres keeps old rows in a table's file, those that the server itself changed or
deleted as well, and values in its statistics: so every table is rewritten in every erasure (VACUUM FULL, ANALYZE), whether
or not something was found in it. What was written ahead or backed up by then is its operator's.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import asyncpg

from lakehouse.governance.scan import Scanned, Search

PATIENCE_S = 30.0  # for a connection, for a lock that somebody else holds, and for transactions that are open
POLL_S = 0.1
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
# Transactions that may still see what was there before a given one: VACUUM does not remove what they may see.
OLDER = """
    with others as (
        select backend_xmin, backend_xid from pg_stat_activity
        where pid <> pg_backend_pid() and coalesce(datname, current_database()) = current_database()
            and pid not in (select pid from pg_stat_progress_vacuum)
    )
    select count(*) from (
        select backend_xmin from others
        union all select backend_xid from others
        union all select transaction from pg_prepared_xacts where database = current_database()
        union all select xmin from pg_replication_slots
    ) as held (since)
    where age(since) > age($1::text::xid)
"""
STATISTICS = ("pg_catalog.pg_statistic", "pg_catalog.pg_statistic_ext_data")  # they hold values of rows
REFUSALS = (asyncpg.IntegrityConstraintViolationError, asyncpg.DataError)  # of a row as it would be
FAULTS = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, UnicodeError)
_SCALAR = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*')  # of JSON
_NUMERIC = re.compile(r"uuid(\[\])?|(smallint|integer|bigint|numeric.*|real|double precision)\[\]")


class Unreachable(ConnectionError):
    """A database, or a table of it, that cannot be searched or rewritten; nothing is signed.

    The message has the server whose it is, the table and the kind of error: what Postgres says holds what is erased, and
    the URL a password.
    """


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
        return f"select ctid::text, {', '.join(shown)} from only {self.name}"  # noqa: S608 - names are quoted by the server


@dataclass
class Database:
    """The database of `owner`, such as Prefect. `rewritten`: every table, since something was last overwritten."""

    owner: str
    url: str
    rewritten: bool = False

    def look(self, search: Search, scanned: Scanned) -> None:
        """Add what is found, by table and column. Unreachable."""
        asyncio.run(self._each(lambda connection, table: self._look(connection, table, search, scanned)))

    def blank(self, search: Search, scanned: Scanned) -> list[str]:
        """Overwrite what is found in the tables where `scanned` says that something is; the columns where it was. Unreachable.

        Then every table is rewritten, at the first call in any case: an erasure that was interrupted between the two finds
        nothing in the rows. A row that Postgres does not take overwritten is left, and `scanned` says why.
        """
        done: dict[str, None] = {}

        async def one(connection: asyncpg.Connection, table: Table) -> None:
            if any(place in scanned.found for place in self._places(table)):
                done.update(dict.fromkeys(await self._blank(connection, table, search, scanned)))

        before, self.rewritten = self.rewritten, False
        asyncio.run(self._each(one))
        if done or not before:
            asyncio.run(self._rewrite())  # after all of them: overwriting in one may change another, by a foreign key
        self.rewritten = True
        return list(done)

    async def _each(self, work: Callable[[asyncpg.Connection, Table], Awaitable[None]]) -> None:
        async with self._connected() as connection:
            for row in await connection.fetch(TABLES):
                with _telling(f"{self.owner}'s database: {row['name']}"):
                    await work(connection, Table(row["name"], row["columns"], row["types"]))

    async def _look(self, connection: asyncpg.Connection, table: Table, search: Search, scanned: Scanned) -> None:
        scanned.files += 1
        places = self._places(table)
        async with connection.transaction(readonly=True):
            async for row in connection.cursor(table.selected, prefetch=AT_A_TIME):
                for place, raw in zip(places, _raw(row), strict=True):
                    scanned.bytes += len(raw)
                    scanned.add(place, search(raw))

    async def _blank(
        self, connection: asyncpg.Connection, table: Table, search: Search, scanned: Scanned
    ) -> Sequence[str]:
        dirty, done = [], []
        async with connection.transaction():
            await connection.execute("set constraints all immediate")  # or a row is refused only at the end, with all
            await connection.execute(
                f"lock table {table.name} in share row exclusive mode"
            )  # or a row's place might change
            async for row in connection.cursor(table.selected, prefetch=AT_A_TIME):
                raw = _raw(row)
                if any(map(search, raw)):
                    dirty.append((row[0], raw))
            for ctid, raw in dirty:
                places = [place for place, held in zip(self._places(table), raw, strict=True) if search(held)]
                try:
                    async with connection.transaction():  # a savepoint
                        await _overwrite(connection, table, ctid, raw, search)
                    done += places
                except REFUSALS as error:
                    for place in places:
                        scanned.add(place, [f"a row is not taken overwritten ({type(error).__name__})"])
        return done

    async def _rewrite(self) -> None:
        async def one(connection: asyncpg.Connection, table: Table) -> None:
            if not await _rewrite(connection, table.name):
                raise PermissionError(f"{table.name} is not ours")

        await self._each(one)
        async with self._connected() as connection:
            for name in STATISTICS:
                with _telling(f"{self.owner}'s database: {name}"):
                    await _rewrite(connection, name)  # as far as we may: the newest values are clean anyway

    def _places(self, table: Table) -> list[str]:
        return [f"{self.owner}'s database: {table.name}.{column}" for column in table.columns]

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[asyncpg.Connection]:
        plain = re.sub(r"^postgres(ql)?(\+\w+)?://", "postgresql://", self.url)  # without SQLAlchemy's driver
        settings = {
            "lock_timeout": f"{PATIENCE_S:.0f}s",
            "statement_timeout": f"{STATEMENT_S:.0f}s",
            "row_security": "off",  # an error where rows are hidden from us
        }
        try:
            connection = await asyncpg.connect(plain, timeout=PATIENCE_S, server_settings=settings)
        except (*FAULTS, ValueError) as error:
            raise Unreachable(
                f"{self.owner}'s database does not let itself be searched: {type(error).__name__}. Start it, or mend the URL in "
                f"LAKELOOP_{self.owner.upper()}_DATABASE, then repeat the erasure"
            ) from None  # the URL holds a password
        with _telling(f"{self.owner}'s database"):
            try:
                yield connection
            finally:
                await connection.close(timeout=PATIENCE_S)


def is_postgres(url: str) -> bool:
    """Whether a database URL, as SQLAlchemy takes it, is of Postgres."""
    return re.match(r"postgres(ql)?(\+\w+)?://", url) is not None


@contextmanager
def _telling(what: str) -> Iterator[None]:
    try:
        yield
    except Unreachable:
        raise
    except FAULTS as error:
        raise Unreachable(
            f"{what} could not be searched or rewritten: {type(error).__name__}. Nothing is signed. End what locks it or has a "
            "transaction open, and let LAKELOOP_*_DATABASE name the tables' owner, then repeat the erasure"
        ) from None  # Postgres tells the values


async def _overwrite(
    connection: asyncpg.Connection, table: Table, ctid: str, raw: Sequence[bytes], search: Search
) -> None:
    sets, values = [], []
    for column, kind, held in zip(table.columns, table.types, raw, strict=True):
        if search(held):
            clean = _clean(kind, held, search)
            values.append(clean if kind == "bytea" else clean.decode())
            sets.append(
                f"{column} = ${len(values)}::{kind}" if kind == "bytea" else f"{column} = ${len(values)}::text::{kind}"
            )
    values.append(ctid)
    where = f"where ctid = ${len(values)}::text::tid"
    await connection.execute(f"update only {table.name} set {', '.join(sets)} {where}", *values)  # noqa: S608 - as above


def _clean(kind: str, held: bytes, search: Search) -> bytes:
    """What is found overwritten so that the type still takes it: by asterisks, and numbers by zeros."""
    clean = search.blanked(held)  # as long as it was

    def scalar(one: re.Match[bytes]) -> bytes:
        if one[0] == clean[one.start() : one.end()]:
            return one[0]
        return b'"' + b"*" * (len(one[0]) - 2) + b'"' if one[0].startswith(b'"') else b"0"

    if kind in ("json", "jsonb"):
        return _SCALAR.sub(scalar, held)  # whole, so that no escape is broken
    if _NUMERIC.fullmatch(kind):
        pairs = zip(held, clean, strict=True)
        return bytes(was if was == now or was not in b"0123456789abcdef" else ord("0") for was, now in pairs)
    return clean


async def _rewrite(connection: asyncpg.Connection, name: str) -> bool:
    """Whether the table lies in a new file, which holds nothing but its rows. TimeoutError.

    Rows that an open transaction may still see would be kept: those that are open now must end before.
    """
    mark = await connection.fetchval("select pg_current_xact_id()::xid::text")
    async with asyncio.timeout(PATIENCE_S):
        while await connection.fetchval(OLDER, mark):  # noqa: ASYNC110 - others end them, unseen by us
            await asyncio.sleep(POLL_S)
    file = "select pg_relation_filenode($1::text::regclass)"
    before = await connection.fetchval(file, name)
    await connection.execute(f"vacuum (full, analyze) {name}")  # only a warning where we may not
    return bool(before != await connection.fetchval(file, name))


def _raw(row: asyncpg.Record) -> list[bytes]:
    """The values of a row, without its place."""
    return [value if isinstance(value, bytes) else (value or "").encode() for value in tuple(row)[1:]]
