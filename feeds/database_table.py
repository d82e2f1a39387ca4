"""A table of a relational database as changes of a relation: by its change log, or by polling it.

A source is `URL#TABLE?key=value&…`. By polling (the default) all rows are read, and what differs from the
read before is deleted and inserted. A log is a table with a column that numbers its rows in the order of
commits, a column that says what happened, and the columns of the row: of the new image under their names or
`new_NAME`, of the old one under `old_NAME` or, where there are none, as the new.

What is read of a table is said by its options, and by where the columns of its rows are. Databases are read
only: files of SQLite and DuckDB, and PostgreSQL by its address, whose driver, ADBC's, is optional.
"""

import contextlib
import re
import sqlite3
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal
from uuid import UUID

import duckdb
import pyarrow as pa

from orderbook.core.errors import Problems, SourceError, extra, first_line_of
from orderbook.feeds.change_stream import DEFAULT_CHANGES, RelationChange
from orderbook.feeds.storage import split_options

FETCH_ROWS = 4_096
_POSTGRES = ("postgresql://", "postgres://")
_POSTGRES_TYPES = {
    "int2", "int4", "int8", "float4", "float8", "numeric", "bool", "text", "varchar", "timestamp",
    "timestamptz",
}  # fmt: skip
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
        return SourceError(f"{self._url}: cannot read: {first_line_of(error) or type(error).__name__}")


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
    """PostgreSQL through ADBC, in batches of Arrow. What is neither number, text nor time is read as text."""

    mark = "$1"

    def __init__(self, url: str):
        super().__init__(url.partition("?")[0].rpartition("@")[2])
        self._types: dict[str, dict[str, str]] = {}
        with extra("postgres", "adbc_driver_postgresql"):
            from adbc_driver_postgresql import dbapi
        self._driver: Any = dbapi
        try:
            self._connection = dbapi.connect(url, autocommit=True)
            with self._connection.cursor() as cursor:
                cursor.execute("SET default_transaction_read_only = on")
        except dbapi.Error as error:
            raise self._error(error) from error

    def columns(self, table: str) -> list[str]:
        query = (
            "SELECT a.attname::text, t.typname::text "
            "FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid WHERE a.attrelid = to_regclass($1) "
            "AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
        )
        found: dict[str, str] = dict(self._fetch(query, (quoted(table),)))
        if not found:
            raise SourceError(f"{self._url}: has no table {table!r}; check the name after #")
        self._types[table] = found
        return list(found)

    def close(self) -> None:
        self._connection.close()

    def _fetch(self, query: str, parameters: Sequence[Any]) -> Iterator[Row]:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(query, parameters or None)
                for batch in cursor.fetch_record_batch():
                    yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
        except (self._driver.Error, pa.ArrowException, OSError, ValueError, OverflowError) as error:
            raise self._error(error) from error

    def _shown(self, table: str, column: str) -> str:
        known = self._types.get(table, {}).get(column) in _POSTGRES_TYPES
        return quoted(column) if known else f"{quoted(column)}::text"

    def _reader(self, table: str, column: str) -> Callable[[Any], Any] | None:
        if self._types.get(table, {}).get(column) == "numeric":
            return lambda value: None if value is None else Decimal(value)
        return None


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, UUID) else value


def _moment(value: Any) -> Any:
    """Text as a time where it is one; numbers are ns as they are."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            return datetime.fromisoformat(value)
    return value


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Which table is read as which relation, and how.

    `relation` is the table's name where it is "". `columns` are those read, each `NAME`, or
    `RELATION_COLUMN:TABLE_COLUMN`; without any, all. `mode` "poll" tells rows apart by the columns `key`, or
    as a multiset without any. `mode` "log" reads after the number `after`; `sequence` and `op` name its
    columns, and rows next to each other with one value of `transaction` are a message.
    """

    url: str
    table: str
    relation: str = ""
    mode: Literal["poll", "log"] = "poll"
    key: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    sequence: str = "sequence"
    op: str = "op"
    transaction: str = ""
    after: str = ""

    @property
    def name(self) -> str:
        """The source as KIND:URL#TABLE, without a password."""
        return f"table:{re.sub(r'//[^@/]*@', '//', self.url)}#{self.table}"

    @property
    def stream(self) -> str:
        """The relation's name."""
        return self.relation or self.table.rpartition(".")[2]


def table_options(text: str) -> TableOptions:
    """The options of `URL#TABLE?key=value&…`; lists have commas. Raises SourceError for what is no option."""
    url, mark, rest = text.rpartition("#")
    known = ("relation", "mode", "key", "columns", "sequence", "op", "transaction", "after")
    table, given = split_options(rest, known)
    if not mark or not url or not table:
        raise SourceError(f"{text}: write the table after the file or address: URL#TABLE")
    options: dict[str, Any] = dict(given)
    for name in ("key", "columns"):
        if name in options:
            options[name] = tuple(options[name].split(","))
    if options.get("mode", "poll") not in ("poll", "log"):
        raise SourceError(f"{text}: mode is 'poll' or 'log', not {options['mode']!r}")
    return TableOptions(url, table, **options)


class Images:
    """Where the columns of a log are: `selected` begins with sequence, op and, where named, transaction."""

    def __init__(self, options: TableOptions, columns: Sequence[str]):
        fixed = [options.sequence, options.op, *([options.transaction] if options.transaction else [])]
        _check(options, fixed, columns)
        others = [c for c in columns if c not in fixed]
        bases = dict.fromkeys(_base(name, others) for name in others)
        names = read_columns(options, list(bases))
        self.selected = [*fixed, *others]
        places = {name: len(fixed) + i for i, name in enumerate(others)}
        new = {n: f"new_{c}" if f"new_{c}" in places else c for n, c in names.items()}
        self._new = {n: places[c] for n, c in new.items() if c in places}
        self._old = {n: places.get(f"old_{c}", self._new.get(n)) for n, c in names.items()}
        self.both = any(f"old_{c}" in places for c in names.values())

    def new(self, row: tuple[Any, ...]) -> dict[str, Any]:
        """The row as it is."""
        return {name: row[place] for name, place in self._new.items()}

    def old(self, row: tuple[Any, ...]) -> dict[str, Any]:
        """The row as it was."""
        return {name: row[place] for name, place in self._old.items() if place is not None}


def _base(name: str, others: Sequence[str]) -> str:
    """The column that `new_NAME` or `old_NAME` is an image of."""
    for prefix, other in (("new_", "old_"), ("old_", "new_")):
        base = name.removeprefix(prefix)
        if base != name and (base in others or f"{other}{base}" in others):
            return base
    return name


def read_columns(options: TableOptions, columns: Sequence[str]) -> dict[str, str]:
    """The relation's columns, and those of the table that they are read from."""
    if not options.columns:
        return {name: name for name in columns}
    pairs = (entry.partition(":") for entry in options.columns)
    names = {name: column or name for name, _, column in pairs}
    _check(options, names.values(), columns)
    return names


def _check(options: TableOptions, wanted: Iterable[str], columns: Sequence[str]) -> None:
    for name in wanted:
        if name not in columns:
            raise SourceError(
                f"{options.name}: the table has no column {name!r}; its columns are {', '.join(columns)}"
            )


def place_of(options: TableOptions, names: Mapping[str, str], key: str) -> int:
    if key not in names:
        raise SourceError(f"{options.name}: the key {key!r} is none of the columns {', '.join(names)}")
    return list(names).index(key)


_INSERTS = {"+", "i", "c", "insert", "create", "update_new", "update_postimage"}
_DELETES = {"-", "d", "delete", "update_old", "update_preimage"}
_UPDATES = {"u", "update"}

Reading = Iterator[list[RelationChange]]


class TableReader:
    """Reads a table again and again: each `read` goes on where the one before has ended.

    `position` is the number of the last row of a log whose message was given, None before the first; a
    change of a log says it as its `line`, where it is an integer.
    """

    def __init__(self, options: TableOptions, problems: Problems, counts: Counter[str]):
        self.position: Any = _number(options.after) if options.after else None
        self._options = options
        self._problems = problems
        self._counts = counts
        self._rows: Mapping[Any, Any] = {}

    def read(self, progress: Callable[[float], object] = lambda fraction: None) -> Reading:
        """Lists of whole messages, up to the present end; `progress` is told the fraction of rows read.

        Raises SourceError where the database cannot be read; what was given stays given, and the next read
        goes on after it.
        """
        with connect(self._options.url) as database:
            if self._options.mode == "log":
                yield from self._read_log(database, progress)
            else:
                yield from self._poll(database, progress)
        self._counts["reads"] += 1

    def _read_log(self, database: Database, progress: Callable[[float], object]) -> Reading:
        options = self._options
        images = Images(options, database.columns(options.table))
        condition = f"WHERE {quoted(options.sequence)} {'IS NOT NULL' if self.position is None else '> '}"
        parameters = () if self.position is None else (self.position,)
        condition += "" if self.position is None else database.mark
        total = database.count(options.table, condition, parameters)
        ordered = f"{condition} ORDER BY {quoted(options.sequence)}"
        batch: list[RelationChange] = []
        waiting: list[RelationChange] = []
        last: tuple[Any, Any] | None = None
        for i, row in enumerate(database.rows(options.table, images.selected, ordered, parameters)):
            number, transaction = row[0], row[2] if options.transaction else None
            if transaction is None:
                transaction = ("row", i)
            if last is not None and transaction != last[1]:
                batch += _message(waiting)
                waiting = []
                if len(batch) >= DEFAULT_CHANGES:
                    self.position = last[0]
                    progress(min(1.0, i / total))
                    yield batch
                    batch = []
            last = (number, transaction)
            waiting += self._logged(images, number if isinstance(number, int) else 0, row)
        self._counts["log rows"] += 0 if last is None else i + 1
        batch += _message(waiting)
        if last is not None:
            self.position = last[0]
        if batch:
            progress(1.0)
            yield batch

    def _logged(self, images: Images, number: int, row: tuple[Any, ...]) -> list[RelationChange]:
        """The changes of a row of a log."""
        op = row[1].strip().lower() if isinstance(row[1], str) else None
        old = op in _DELETES or op in _UPDATES
        new = op in _INSERTS or op in _UPDATES
        if not old and not new:
            detail = f"{row[1]!r} is no insert, update or delete"
            self._wrong("unknown operation", f"sequence {row[0]}", detail)
        elif old and new and not images.both:
            self._wrong("update without its old row", f"sequence {row[0]}", "the log has no columns old_…")
        else:
            stream = self._options.stream
            deleted = [RelationChange(number, stream, "-", images.old(row), False)] if old else []
            return deleted + ([RelationChange(number, stream, "+", images.new(row), False)] if new else [])
        return []

    def _poll(self, database: Database, progress: Callable[[float], object]) -> Reading:
        options = self._options
        names = read_columns(options, database.columns(options.table))
        total = max(1, database.count(options.table))
        keys = [place_of(options, names, key) for key in options.key]
        rows: dict[Any, Any] = {}
        counts: Counter[Any] = Counter()
        for i, row in enumerate(database.rows(options.table, list(names.values()))):
            if i % DEFAULT_CHANGES == 0:
                progress(min(1.0, i / total))
            if not keys:
                counts[row] += 1
                continue
            key = tuple(row[place] for place in keys)
            if rows.setdefault(key, row) is not row:
                self._wrong("key that is not unique", f"row {i + 1}", f"{', '.join(options.key)} = {key}")
        found: Mapping[Any, Any] = rows if keys else counts
        changes = _difference(self._rows, found, partial(_change, options.stream, tuple(names)), bool(keys))
        self._rows = found
        self._counts["rows polled"] += len(rows) if keys else counts.total()
        progress(1.0)
        if changes:
            yield _message(changes)

    def _wrong(self, kind: str, place: str, detail: str) -> None:
        self._problems.add(kind, f"{self._options.name} {place}", detail)


class TableSource:
    """A table's changes up to the present end: of a log all rows, by polling the rows there are.

    The rows of a transaction, and the changes of a poll, are a message. `reader` is the reader of the latest
    iteration, which can go on. Raises SourceError when the database or table is not there, and, while
    iterating, where it goes away.
    """

    may_be_empty = True

    def __init__(self, options: TableOptions):
        self.name = options.name
        self.options = options
        self.problems = Problems()
        self.counts: Counter[str] = Counter()
        self._progress = 0.0
        with connect(options.url) as database:
            columns = database.columns(options.table)
        # A column that is not there is an error before anything runs.
        if options.mode == "log":
            Images(options, columns)
        else:
            names = read_columns(options, columns)
            for key in options.key:
                place_of(options, names, key)
        self.reader = self._new_reader()

    @property
    def progress(self) -> float:
        """Fraction of the rows read."""
        return self._progress

    def __iter__(self) -> Reading:
        self.problems.clear()
        self.counts.clear()
        self._progress = 0.0
        self.reader = self._new_reader()
        yield from self.reader.read(self._set_progress)

    def _set_progress(self, fraction: float) -> None:
        self._progress = fraction

    def _new_reader(self) -> TableReader:
        return TableReader(self.options, self.problems, self.counts)


def _number(text: str) -> int | str:
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def _change(
    stream: str, names: tuple[str, ...], op: Literal["+", "-"], row: tuple[Any, ...]
) -> RelationChange:
    return RelationChange(0, stream, op, dict(zip(names, row, strict=True)), False)


def _difference(
    before: Mapping[Any, Any], now: Mapping[Any, Any], change: Callable[..., RelationChange], keyed: bool
) -> list[RelationChange]:
    """Deletes, then inserts. Keyed: key to row; else: row to how often it stands."""
    changes = []
    for op, ones, others in (("-", before, now), ("+", now, before)):
        for key, value in ones.items():
            if not keyed:
                changes += [change(op, key)] * max(0, value - others.get(key, 0))
            elif others.get(key) != value:
                changes.append(change(op, value))
    return changes


def _message(changes: list[RelationChange]) -> list[RelationChange]:
    """The changes, the last of them flagged."""
    return [*changes[:-1], changes[-1]._replace(last=True)] if changes else []
