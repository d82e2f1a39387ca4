"""Runs SQL in DuckDB over Arrow tables, with no access to files or the network.

What a query may be made of: SELECTs over what the program holds, and functions that compute. DuckDB has
functions and views that tell of its settings, of files and of the process that it runs in. Only those on
a list are let through, as the parsed text names them, in whatever spelling, schema or nesting.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from threading import Lock
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa

from orderbook.core.errors import SqlError
from orderbook.core.units import size_text
from orderbook.views.names import UniqueNames
from orderbook.views.types import Parameter

# In FROM: those that make rows of their arguments alone.
TABLE_FUNCTIONS = frozenset({"generate_series", "json_each", "json_tree", "range", "repeat_row", "unnest"})
# They give something else each time, but tell nothing that others may not know.
_CHANGING = frozenset(
    (
        "current_date", "current_localtime", "current_localtimestamp", "error", "gen_random_uuid",
        "get_current_time", "get_current_timestamp", "now", "random", "today", "transaction_timestamp",
        "uuid", "uuidv4", "uuidv7",
    )
)  # fmt: skip
# They always give the same, but of the program or of files, or run what others must not be asked to.
_TELLING = frozenset(
    (
        "json_deserialize_sql", "json_serialize_plan", "json_serialize_sql", "parse_duckdb_log_message",
        "version",
    )
)  # fmt: skip
_INTERNAL = ("__internal", "pg_", "duckdb_", "pragma_", "has_", "inet_")
# What reads or writes otherwise than a SELECT, wherever it stands in one.
_REFUSED_NODES = {
    "SHOW_REF": "DESCRIBE, SHOW and SUMMARIZE",
    "INSERT_QUERY_NODE": "INSERT",
    "UPDATE_QUERY_NODE": "UPDATE",
    "DELETE_QUERY_NODE": "DELETE",
    "MERGE_INTO_QUERY_NODE": "MERGE",
}


@dataclass(frozen=True, slots=True)
class QueryNames:
    """The lower-case names in FROM at any depth, in order, and those that a query's WITHs give."""

    tables: tuple[str, ...]
    given: frozenset[str]


def placed(message: str, position: object, sql: str, start: int = 0) -> SqlError:
    """An error at a position that DuckDB tells, in bytes, of SQL that began at `start`; None: nowhere."""
    if position is None or not str(position).isdecimal():
        return SqlError(message)
    before = sql.encode()[: max(int(str(position)) - start, 0)].decode(errors="ignore")
    return SqlError(message, before.count("\n") + 1, len(before) - before.rfind("\n"))


def names_in(tree: Mapping[str, Any], sql: str) -> QueryNames:
    """The names in SQL, of which `json_serialize_sql` gives the tree.

    Raises SqlError with line and column for what is not let through.
    """
    tables: dict[str, None] = {}
    given: set[str] = set()
    waiting: list[Any] = [tree]
    # Not by recursion: texts may be nested deeply.
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if (wrong := _refused_node(node)) is not None:
                raise placed(wrong, node.get("query_location"), sql)
            if node.get("type") == "BASE_TABLE":
                tables[str(node["table_name"]).lower()] = None
            given.update(str(entry["key"]).lower() for entry in _entries(node.get("cte_map")))
            waiting.extend(reversed(node.values()))
        elif isinstance(node, list):
            waiting.extend(reversed(node))
    if hidden := sorted(given & _system_views()):
        raise SqlError(f"{hidden[0]} names a view of DuckDB; call what WITH gives otherwise")
    return QueryNames(tuple(tables), frozenset(given))


def check_tables(names: QueryNames, known: Mapping[str, object]) -> None:
    """Raises SqlError for a view of DuckDB's own, which nobody is told."""
    for name in names.tables:
        if name in _system_views() and name not in known:
            raise SqlError(f"{name} tells of DuckDB, not of the market, and is not let through")


def _entries(given: Any) -> list[Any]:
    return list(given.get("map", ())) if isinstance(given, dict) else []


def _refused_node(node: Mapping[str, Any]) -> str | None:
    kind = str(node.get("type"))
    if kind in _REFUSED_NODES or kind.endswith("_QUERY_NODE"):
        return f"{_REFUSED_NODES.get(kind, kind)} cannot stand in a query; it asks and changes nothing"
    if kind == "BASE_TABLE" and (node.get("schema_name") or node.get("catalog_name")):
        return f"no view or relation is named {node['table_name']!r}; leave out its schema"
    if kind == "TABLE_FUNCTION" and (called := _function(node)) not in TABLE_FUNCTIONS:
        return f"table function {called} is not let through; {', '.join(sorted(TABLE_FUNCTIONS))} are"
    called = str(node.get("function_name", "")).lower()
    if kind != "TABLE_FUNCTION" and called in _refused_functions():
        return f"function {called} is not let through; it tells of DuckDB or of this machine"
    return None


def _function(node: Mapping[str, Any]) -> str:
    called = node.get("function")
    return str(called.get("function_name", "")).lower() if isinstance(called, dict) else ""


@cache
def _refused_functions() -> frozenset[str]:
    """Functions of DuckDB that are not let through as values; table functions that are no other kind, too."""
    kinds: dict[str, set[tuple[str, str | None, str | None, str]]] = {}
    with _connection() as connection:
        found = connection.execute(
            "SELECT lower(function_name), function_type, stability, macro_definition, schema_name "
            "FROM duckdb_functions()"
        ).fetchall()
    for name, kind, stability, macro, schema in found:
        kinds.setdefault(name, set()).add((kind, stability, macro, schema))
    refused = {name for name, own in kinds.items() if not _computes(name, own)}
    # Macros of DuckDB's own that call what is refused.
    for name, own in kinds.items():
        if any(f"{other}(" in (macro or "") for _, _, macro, _ in own for other in refused):
            refused |= set() if name in _CHANGING else {name}
    return frozenset(refused)


def _computes(name: str, own: set[tuple[str, str | None, str | None, str]]) -> bool:
    if name in _CHANGING or name in TABLE_FUNCTIONS:
        return True
    if name in _TELLING or name.startswith(_INTERNAL):
        return False
    return any(
        (kind in ("scalar", "aggregate", "window") and stability == "CONSISTENT")
        or (kind == "macro" and schema == "main" and "select" not in (macro or "").lower())
        for kind, stability, macro, schema in own
    ) and not any(stability not in ("CONSISTENT", None) for _, stability, _, _ in own)


@cache
def _system_views() -> frozenset[str]:
    with _connection() as connection:
        rows = connection.execute("SELECT lower(view_name) FROM duckdb_views() WHERE internal").fetchall()
    return frozenset(name for (name,) in rows)


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
# Of a file: rows that are read at a time, bytes of its batches, and of a batch of one row.
_FILE_BATCH_ROWS, _FILE_BATCH_BYTES, _MOST_ROW_BYTES = 16_384, 1 << 20, 4 << 20
# How DuckDB and Arrow say that there is no more memory.
_NO_MEMORY = ("Out of Memory", "bad allocation", "Allocation failure", "bad_alloc")
_TOO_LARGE = "the query needs more memory than it may take; ask for less at a time"
_INTERVAL, _QUOTED = re.compile(r"\bINTERVAL\b"), re.compile(r"\"[^\"]*\"|'[^']*'")
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


def install(tables: Mapping[str, pa.Table], macros: Iterable[str]) -> None:
    """Tables that every query of this process can read from now on, and macros that read them."""
    with _connection() as connection:
        for name, table in tables.items():
            connection.register("given", table)
            connection.execute(f'CREATE OR REPLACE TABLE "{name}" AS SELECT * FROM given')
        for statement in macros:
            connection.execute(statement)


def output_columns(
    sql: str, schemas: Mapping[str, pa.Schema], parameters: Mapping[str, Parameter]
) -> list[tuple[str, str]]:
    """Names and types of a query's columns, as DuckDB has them. Raises SqlError with the place."""
    with _connection() as connection:
        for name, schema in schemas.items():
            connection.register(name, schema.empty_table())
        try:
            found = connection.execute(_DESCRIBE + sql, _values(parameters)).fetchall()
        except duckdb.Error as error:
            raise duckdb_error(error, sql, len(_DESCRIBE)) from None
        for name, kind, *_ in found:
            if _INTERVAL.search(_QUOTED.sub("", str(kind))):
                raise SqlError(
                    f"column {name} is an interval, which answers do not have; give seconds, as "
                    f"extract(epoch FROM …), or text, as (…)::TEXT"
                )
        # Of equal names polars takes only one.
        names = UniqueNames()
        return [(names.new(row[0]), str(row[1])) for row in found]


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
    with _asked(sql, tables, parameters, running) as found:
        result, count = _read(found.to_arrow_reader(_BATCH_ROWS), limits)
    frame = pl.from_arrow(result.rename_columns(list(names)))
    assert isinstance(frame, pl.DataFrame)
    return frame, count


def run_to_file(
    sql: str,
    tables: Mapping[str, pa.Table],
    parameters: Mapping[str, Parameter],
    names: Sequence[str],
    running: Running,
    path: str,
    most: int,
    describe: bool = False,
) -> int:
    """As `run`, into a file of Arrow's at `path`, which is there, of at most so many bytes; rows written.

    Batches have about 1 MB each. describe: the columns alone. Raises SqlError.
    """
    with _asked(sql, tables, parameters, running) as found:
        reader = (found.limit(0) if describe else found).to_arrow_reader(_FILE_BATCH_ROWS)
        schema = pa.schema([own.with_name(name) for own, name in zip(reader.schema, names, strict=True)])
        return write_batches(reader, schema, running, path, most)


def write_batches(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, running: Running, path: str, most: int
) -> int:
    """Batches, as they come, into a file as `run_to_file` writes it; rows written. Raises SqlError."""
    with open(path, "r+b") as file, pa.ipc.new_file(file, schema) as writer:
        return _written(batches, writer, schema, running, most)


@contextmanager
def _asked(
    sql: str, tables: Mapping[str, pa.Table], parameters: Mapping[str, Parameter], running: Running
) -> Iterator[duckdb.DuckDBPyRelation]:
    """What a query gives, to be read within the block. Raises SqlError."""
    with _connection() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        running.begin(connection)
        try:
            yield connection.sql(sql, params=_values(parameters))
        except (duckdb.Error, pa.ArrowException, OSError, MemoryError) as error:
            raise _stopped() if running.stopped else duckdb_error(error, sql) from None
        finally:
            running.end()


def _written(
    batches: Iterable[pa.RecordBatch], writer: Any, schema: pa.Schema, running: Running, most: int
) -> int:
    count = nbytes = 0
    for batch in batches:
        if running.stopped:
            raise _stopped()
        count += batch.num_rows
        nbytes += batch.nbytes
        if nbytes > most:
            raise SqlError(f"the answer has more than {size_text(most)}, the limit; ask for less at a time")
        waiting = [pa.RecordBatch.from_arrays(batch.columns, schema=schema)]
        while waiting:
            part = waiting.pop()
            if part.nbytes <= _FILE_BATCH_BYTES or part.num_rows == 1:
                if part.nbytes > _MOST_ROW_BYTES:
                    raise SqlError(f"a row has more than {size_text(_MOST_ROW_BYTES)}, the limit")
                writer.write_batch(part)
            else:
                half = part.num_rows // 2
                waiting += [part.slice(half), part.slice(0, half)]
    return count


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
    if isinstance(error, MemoryError) or _is_of_memory(text):
        return SqlError(_TOO_LARGE)
    try:
        found = json.loads(text[text.index("{") :])
    except ValueError:
        return SqlError(_one_line(text))
    return placed(_one_line(str(found.get("exception_message", text))), found.get("position"), sql, start)


def _refusal(found: Mapping[str, Any], sql: str) -> SqlError:
    if found.get("error_type") == "not implemented":
        return SqlError("only a SELECT can be asked; it changes nothing", 1, 1)
    if _is_of_memory(str(found["error_message"])):
        return SqlError(_TOO_LARGE)
    message = _one_line(str(found["error_message"]))
    if "match_recognize" in sql.lower():
        message += "; MATCH_RECOGNIZE is of views: add one, and ask that"
    return placed(message, found.get("position"), sql)


def _is_of_memory(message: str) -> bool:
    return any(said in message for said in _NO_MEMORY)


def _one_line(message: str) -> str:
    """Without the list of candidates that DuckDB adds to some."""
    return " ".join(message.partition("\n\tCandidate functions")[0].split())


def _values(parameters: Mapping[str, Parameter]) -> dict[str, Any]:
    """A float is the decimal that its repr shows, as it is in views."""
    return {n: Decimal(repr(v)) if isinstance(v, float) else v for n, v in parameters.items()}
