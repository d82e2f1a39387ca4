"""Tables of databases, read only: files of SQLite and DuckDB, and PostgreSQL by its address.

The driver of PostgreSQL, psycopg 3, is optional.
"""

import contextlib
import importlib
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import UUID

import duckdb

from orderbook.core.errors import SourceError

FETCH_ROWS = 4_096
_POSTGRES = ("postgresql://", "postgres://")
_SQLITE_MAGIC, _DUCKDB_MAGIC = b"SQLite format 3\0", b"DUCK"
# Seconds that a reader waits for a writer's lock.
_LOCK_SECONDS = 5.0

Row = tuple[Any, ...]


class Database(ABC):
    """One connection. Every method raises SourceError where the database or table cannot be read.

    Use it as a context manager.
    """

    mark = "?"

    def __init__(self, url: str):
        self._url = url

    @abstractmethod
    def columns(self, table: str) -> list[str]:
        """The names of a table's columns."""

    def rows(
        self, table: str, columns: Sequence[str], condition: str = "", parameters: Sequence[Any] = ()
    ) -> Iterator[Row]:
        """Rows in bounded memory; `condition` is what SQL says after FROM, with a `mark` per parameter."""
        shown = ", ".join(self._shown(table, column) for column in columns)
        query = f"SELECT {shown} FROM {quoted(table)} {condition}"
        readers = [self._reader(table, column) for column in columns]
        for row in self._fetch(query, parameters):
            yield tuple(
                [value if read is None else read(value) for read, value in zip(readers, row, strict=True)]
            )

    def count(self, table: str, condition: str = "", parameters: Sequence[Any] = ()) -> int:
        """How many rows there are."""
        query = f"SELECT count(*) FROM {quoted(table)} {condition}"
        return int(next(iter(self._fetch(query, parameters)))[0])

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> "Database":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def _fetch(self, query: str, parameters: Sequence[Any]) -> Iterator[Row]: ...

    def _shown(self, table: str, column: str) -> str:
        """A column as it is selected."""
        return quoted(column)

    def _reader(self, table: str, column: str) -> Callable[[Any], Any] | None:
        """What makes a value of what the driver gives, where that is not one."""
        return None

    def _error(self, error: Exception) -> SourceError:
        first = str(error).partition("\n")[0].rstrip(".")
        return SourceError(f"{self._url}: cannot read: {first or type(error).__name__}")


def connect(url: str) -> Database:
    """Open a SQLite or DuckDB file, known by its content, or the PostgreSQL database of an address.

    Raises SourceError when it is not there, of no kind known, or its driver is missing.
    """
    if url.startswith(_POSTGRES):
        return _PostgresDatabase(url)
    try:
        with Path(url).open("rb") as file:
            head = file.read(16)
    except OSError as error:
        raise SourceError(f"{url}: cannot read: {error.strerror}; check the path") from error
    # A new SQLite file is empty until its first table is there.
    if head == _SQLITE_MAGIC or not head:
        return _SqliteDatabase(url)
    if head[8:12] == _DUCKDB_MAGIC:
        return _DuckDatabase(url)
    raise SourceError(f"{url}: neither a SQLite nor a DuckDB file; give one, or a postgresql:// address")


def quoted(name: str) -> str:
    """A name as SQL takes it whatever it holds; `schema.table` is two names."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


class _SqliteDatabase(Database):
    """SQLite has no booleans and no timestamps: values of columns declared so are read as such."""

    def __init__(self, url: str):
        super().__init__(url)
        self._types: dict[str, dict[str, str]] = {}
        try:
            address = f"{Path(url).absolute().as_uri()}?mode=ro"
            self._connection = sqlite3.connect(
                address, uri=True, timeout=_LOCK_SECONDS, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise self._error(error) from error

    def columns(self, table: str) -> list[str]:
        schema, _, name = table.rpartition(".")
        prefix = f"{quoted(schema)}." if schema else ""
        rows = list(self._fetch(f"PRAGMA {prefix}table_info({quoted(name)})", ()))
        if not rows:
            raise SourceError(f"{self._url}: has no table {table!r}; check the name after #")
        self._types[table] = {row[1]: str(row[2]).upper() for row in rows}
        return list(self._types[table])

    def close(self) -> None:
        self._connection.close()

    def _fetch(self, query: str, parameters: Sequence[Any]) -> Iterator[Row]:
        try:
            cursor = self._connection.execute(query, parameters)
            while rows := cursor.fetchmany(FETCH_ROWS):
                yield from rows
        except sqlite3.Error as error:
            raise self._error(error) from error

    def _reader(self, table: str, column: str) -> Callable[[Any], Any] | None:
        declared = self._types.get(table, {}).get(column, "")
        if "BOOL" in declared:
            return lambda value: bool(value) if value in (0, 1) else value
        return _moment if "TIMESTAMP" in declared or "DATETIME" in declared else None


class _DuckDatabase(Database):
    """DuckDB lets one process write a file, or several read it."""

    def __init__(self, url: str):
        super().__init__(url)
        self._types: dict[str, dict[str, str]] = {}
        try:
            self._connection = duckdb.connect(url, read_only=True)
        except duckdb.Error as error:
            raise self._error(error) from error

    def columns(self, table: str) -> list[str]:
        try:
            rows = self._connection.execute(f"DESCRIBE {quoted(table)}").fetchall()
        except duckdb.CatalogException as error:
            raise SourceError(f"{self._url}: has no table {table!r}; check the name after #") from error
        except duckdb.Error as error:
            raise self._error(error) from error
        self._types[table] = {row[0]: str(row[1]).upper() for row in rows}
        return list(self._types[table])

    def close(self) -> None:
        self._connection.close()

    def _fetch(self, query: str, parameters: Sequence[Any]) -> Iterator[Row]:
        try:
            result = self._connection.execute(query, list(parameters))
            while rows := result.fetchmany(FETCH_ROWS):
                yield from rows
        except duckdb.Error as error:
            raise self._error(error) from error

    def _shown(self, table: str, column: str) -> str:
        # A datetime of Python would lose the ns.
        timestamp = self._types.get(table, {}).get(column, "").startswith("TIMESTAMP")
        return f"epoch_ns({quoted(column)})" if timestamp else quoted(column)

    def _reader(self, table: str, column: str) -> Callable[[Any], Any] | None:
        return _text if self._types.get(table, {}).get(column) == "UUID" else None


class _PostgresDatabase(Database):
    """PostgreSQL; rows come through a cursor on the server."""

    mark = "%s"

    def __init__(self, url: str):
        super().__init__(url.partition("?")[0].rpartition("@")[2])
        try:
            self._driver: Any = importlib.import_module("psycopg")
        except ImportError as error:
            raise SourceError(
                f"{self._url}: PostgreSQL is read with psycopg, which is not installed; "
                "run: pip install 'psycopg[binary]>=3.1'"
            ) from error
        try:
            self._connection = self._driver.connect(url, options="-c default_transaction_read_only=on")
        except self._driver.Error as error:
            raise self._error(error) from error

    def columns(self, table: str) -> list[str]:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(f"SELECT * FROM {quoted(table)} LIMIT 0")
                return [column.name for column in cursor.description]
        except self._driver.errors.UndefinedTable as error:
            raise SourceError(f"{self._url}: has no table {table!r}; check the name after #") from error
        except self._driver.Error as error:
            raise self._error(error) from error

    def close(self) -> None:
        self._connection.close()

    def _fetch(self, query: str, parameters: Sequence[Any]) -> Iterator[Row]:
        try:
            with self._connection.cursor(name="rows") as cursor:
                cursor.itersize = FETCH_ROWS
                cursor.execute(query, parameters)
                yield from cursor
        except self._driver.Error as error:
            raise self._error(error) from error

    def _reader(self, table: str, column: str) -> Callable[[Any], Any] | None:
        return _text


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, UUID) else value


def _moment(value: Any) -> Any:
    """Text as a time where it is one; numbers are ns as they are."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            return datetime.fromisoformat(value)
    return value
