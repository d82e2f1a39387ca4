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
from views.compiler.binding.bind import Parameter
from views.compiler.unique_names import UniqueNames

_OPTIONS: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "errors_as_json": "true",
    "temp_directory": "",
    "memory_limit": "1GB",
    "threads": "2",
    "lock_configuration": "true",
}
# Before a SELECT: nothing is executed but its names and types are found.
_DESCRIBE = "DESCRIBE "


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
                raise SqlError("the query was stopped")
            self._connection = connection

    def end(self) -> None:
        """There is nothing to interrupt any more."""
        with self._lock:
            self._connection = None


def tables_in(sql: str) -> tuple[tuple[str, ...], frozenset[str]]:
    """The lower-case names after FROM in a SELECT, at any depth, and those that its WITHs give.

    Raises SqlError for SQL that DuckDB cannot parse or that is not one SELECT.
    """
    with _connection() as connection:
        row = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchone()
    found = json.loads(row[0]) if row is not None else {}
    if found.get("error"):
        raise _refusal(found, sql)
    if len(found["statements"]) != 1:
        raise SqlError("give one SELECT at a time")
    names: dict[str, None] = {}
    given: set[str] = set()
    _collect(found, names, given)
    return tuple(names), frozenset(given)


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
    with _connection() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        running.begin(connection)
        try:
            result = connection.sql(sql, params=_values(parameters)).to_arrow_table()
        except duckdb.Error as error:
            raise SqlError("the query was stopped") if running.stopped else duckdb_error(error, sql) from None
        finally:
            running.end()
    frame = pl.from_arrow(result.rename_columns(list(names)))
    assert isinstance(frame, pl.DataFrame)
    return frame


def _connection() -> duckdb.DuckDBPyConnection:
    """A connection of its own; tables that are registered with it are not seen by others."""
    with _starting:
        return _database().cursor()


_starting = Lock()


@cache
def _database() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config=_OPTIONS)


def duckdb_error(error: duckdb.Error, sql: str, start: int = 0) -> SqlError:
    """DuckDB's error as one line, with line and column where it says so; the SQL began at `start`."""
    text = str(error)
    try:
        found = json.loads(text[text.index("{") :])
    except ValueError:
        return SqlError(_one_line(text))
    return _positioned(str(found.get("exception_message", text)), found.get("position"), sql, start)


def _refusal(found: Mapping[str, Any], sql: str) -> SqlError:
    if found.get("error_type") == "not implemented":
        return SqlError("only a SELECT can be asked; it changes nothing", 1, 1)
    return _positioned(str(found["error_message"]), found.get("position"), sql)


def _positioned(message: str, position: object, sql: str, start: int = 0) -> SqlError:
    message = _one_line(message)
    if position is None or not str(position).isdecimal():
        return SqlError(message)
    # Positions are counted in bytes.
    before = sql.encode()[: max(int(str(position)) - start, 0)].decode(errors="ignore")
    return SqlError(message, before.count("\n") + 1, len(before) - before.rfind("\n"))


def _one_line(message: str) -> str:
    """Without the list of candidates that DuckDB adds to some."""
    return " ".join(message.partition("\n\tCandidate functions")[0].split())


def _collect(node: Any, names: dict[str, None], given: set[str]) -> None:
    if isinstance(node, dict):
        if node.get("type") == "BASE_TABLE" and not node.get("schema_name"):
            names[str(node["table_name"]).lower()] = None
        given.update(str(entry["key"]).lower() for entry in node.get("cte_map", {}).get("map", ()))
        for child in node.values():
            _collect(child, names, given)
    elif isinstance(node, list):
        for child in node:
            _collect(child, names, given)


def _values(parameters: Mapping[str, Parameter]) -> dict[str, Any]:
    """A float is the decimal that its repr shows, as it is in views."""
    return {n: Decimal(repr(v)) if isinstance(v, float) else v for n, v in parameters.items()}

