"""Runs SQL in DuckDB over Arrow tables, with no access to files or the network."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from threading import Lock
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa

from orderbook.errors import SqlError
from orderbook.sizes import size_text
from views.compiler.binding.bind import Parameter
from views.compiler.unique_names import UniqueNames

from .allowed_sql import QueryNames, names_in, placed

_options: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "python_enable_replacements": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "errors_as_json": "true",
    "temp_directory": "",
    "memory_limit": "1GB",
    "threads": "2",
    "lock_configuration": "true",
}
# Rows that are read at a time.
_BATCH_ROWS = 2048
# How DuckDB and Arrow say that there is no more memory.
_NO_MEMORY = ("Out of Memory", "bad allocation", "Allocation failure", "bad_alloc")
# Before a SELECT: nothing is executed but its names and types are found.
_DESCRIBE = "DESCRIBE "


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """How large an answer may be; beyond that it is refused while it is read.

    rows: all of it. kept_rows: those that are kept, of which nbytes is the size as Arrow has them.
    """

    rows: int
    kept_rows: int
    nbytes: int


@dataclass(slots=True)
class Running:
    """A query that another thread can stop."""

    stopped: bool = False
    _connection: duckdb.DuckDBPyConnection | None = None
    _lock: Lock = field(default_factory=Lock)

    def stop(self) -> None:
        """From any thread: the query ends with SqlError, now or as soon as it begins."""
        with self._lock:
            self.stopped = True
            if self._connection is not None:
                self._connection.interrupt()

    def begin(self, connection: duckdb.DuckDBPyConnection) -> None:
        """It is this connection that is to be interrupted. Raises SqlError where it was stopped before."""
        with self._lock:
            if self.stopped:
                raise _stopped()
            self._connection = connection

    def end(self) -> None:
        """There is nothing to interrupt any more."""
        with self._lock:
            self._connection = None


def limit_memory(nbytes: int) -> None:
    """What DuckDB takes in this process, bytes; before the first query."""
    _options["memory_limit"] = f"{nbytes} bytes"


def tables_in(sql: str) -> QueryNames:
    """The names in a SELECT. Raises SqlError for SQL that is not one SELECT, or that is not let through."""
    with _connection() as connection:
        row = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchone()
    found = json.loads(row[0]) if row is not None else {}
    if found.get("error"):
        raise _refusal(found, sql)
    if len(found["statements"]) != 1:
        raise SqlError("give one SELECT at a time")
    return names_in(found, sql)


def output_names(
    sql: str, schemas: Mapping[str, pa.Schema], parameters: Mapping[str, Parameter]
) -> list[str]:
    """The names of a query's columns, as DuckDB calls them. Raises SqlError that says where it is wrong."""
    with _connection() as connection:
        for name, schema in schemas.items():
            connection.register(name, schema.empty_table())
        try:
            found = connection.execute(_DESCRIBE + sql, _values(parameters)).fetchall()
        except duckdb.Error as error:
            raise duckdb_error(error, sql, len(_DESCRIBE)) from None
        # Of equal names polars takes only one.
        names = UniqueNames()
        return [names.new(row[0]) for row in found]


def run(
    sql: str,
    tables: Mapping[str, pa.Table],
    parameters: Mapping[str, Parameter],
    names: Sequence[str],
    running: Running,
) -> pl.DataFrame:
    """What a SELECT gives over the tables, its columns called `names`. Raises SqlError."""
    return run_within(sql, tables, parameters, names, running, None)[0]


def run_within(
    sql: str,
    tables: Mapping[str, pa.Table],
    parameters: Mapping[str, Parameter],
    names: Sequence[str],
    running: Running,
    limits: AnswerLimits | None,
) -> tuple[pl.DataFrame, int]:
    """As `run`, within limits: the rows that are kept, and how many there are. Raises SqlError."""
    with _connection() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        running.begin(connection)
        try:
            reader = connection.sql(sql, params=_values(parameters)).to_arrow_reader(_BATCH_ROWS)
            result, count = _read(reader, limits)
        except (duckdb.Error, pa.ArrowException, OSError, MemoryError) as error:
            raise _stopped() if running.stopped else duckdb_error(error, sql) from None
        finally:
            running.end()
    frame = pl.from_arrow(result.rename_columns(list(names)))
    assert isinstance(frame, pl.DataFrame)
    return frame, count


def _read(reader: pa.RecordBatchReader, limits: AnswerLimits | None) -> tuple[pa.Table, int]:
    """Batches as they come; no more of them than are kept is ever held."""
    kept: list[pa.RecordBatch] = []
    count = held = 0
    for batch in reader:
        if limits is not None:
            left = limits.kept_rows - count
            count += batch.num_rows
            if count > limits.rows:
                raise SqlError(f"the answer has more than {limits.rows:,} rows, the limit; add a LIMIT")
            if left <= 0:
                continue
            batch = batch.slice(0, left)
            held += batch.nbytes
            if held > limits.nbytes:
                most = size_text(limits.nbytes)
                raise SqlError(f"the answer has more than {most}, the limit; ask for fewer rows or columns")
        else:
            count += batch.num_rows
        kept.append(batch)
    return pa.Table.from_batches(kept, reader.schema), count


def _stopped() -> SqlError:
    return SqlError("the query was stopped")


def _connection() -> duckdb.DuckDBPyConnection:
    """A connection of its own; tables that are registered with it are not seen by others."""
    with _starting:
        return _database().cursor()


_starting = Lock()


@cache
def _database() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config=_options)


def duckdb_error(error: Exception, sql: str, start: int = 0) -> SqlError:
    """DuckDB's error as one line, with line and column where it says so; the SQL began at `start`."""
    text = str(error)
    if isinstance(error, MemoryError) or any(said in text for said in _NO_MEMORY):
        return SqlError("the query needs more memory than it may take; ask for less at a time")
    try:
        found = json.loads(text[text.index("{") :])
    except ValueError:
        return SqlError(_one_line(text))
    return placed(_one_line(str(found.get("exception_message", text))), found.get("position"), sql, start)


def _refusal(found: Mapping[str, Any], sql: str) -> SqlError:
    if found.get("error_type") == "not implemented":
        return SqlError("only a SELECT can be asked; it changes nothing", 1, 1)
    return placed(_one_line(str(found["error_message"])), found.get("position"), sql)


def _one_line(message: str) -> str:
    """Without the list of candidates that DuckDB adds to some."""
    return " ".join(message.partition("\n\tCandidate functions")[0].split())


def _values(parameters: Mapping[str, Parameter]) -> dict[str, Any]:
    """A float is the decimal that its repr shows, as it is in views."""
    return {n: Decimal(repr(v)) if isinstance(v, float) else v for n, v in parameters.items()}

