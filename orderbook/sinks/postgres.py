"""Tables of PostgreSQL as targets, through ADBC: a view's present rows, or its changes.

Changes are sent as one JSON document a batch, which the server takes apart by the types of the table's
columns: decimals and integers of any size are exact, NaN and infinities are themselves. A TIMESTAMP has µs in
a column of that type, cut off, and its ns in one of the type bigint or numeric. PostgreSQL's text has no NUL,
which becomes U+FFFD.

A row's key, as a JSON array, is `_key`. The version of the change is `_stamp`, `_switch` and `_seq`. The
table `orderbook_sinks` says of every table of rows which run writes it, and as of what version it stands:
another run that begins takes it over, so that nothing a run sends late is written over rows of the one after
it.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from orderbook.core.errors import Problems, extra
from orderbook.engine.runtime.subscriptions import Version
from orderbook.feeds.database_table import quoted
from orderbook.sinks.outbox import RowChange, SinkError, SinkRefused, encode_json, json_value, key_text
from orderbook.views.encoding.values import Value
from orderbook.views.m3 import Result
from orderbook.views.types import Kind, Type

_TYPES = {
    Kind.INTEGER: "bigint",
    Kind.DECIMAL: "numeric",
    Kind.DOUBLE: "double precision",
    Kind.BOOLEAN: "boolean",
    Kind.TEXT: "text",
    Kind.TIMESTAMP: "timestamp",
}
_VERSION = {"_stamp": "bigint", "_switch": "integer", "_seq": "bigint"}
_ROWS = {"_key": "text", "_multiplicity": "bigint", **_VERSION}
_CHANGES = {**_ROWS, "_op": "text"}
# Rows that are sent together where all are.
_TOGETHER = 5_000
_EPOCH = datetime(1970, 1, 1)
# Classes of SQLSTATE that go away by themselves: no connection, no resources, conflicts, a server that ends.
_PASSING = ("08", "53", "55", "57", "58", "40", "XX")


class PostgresTable(ABC):
    """What both kinds of tables have in common. `address` is libpq's, `name` may be SCHEMA.TABLE."""

    own: dict[str, str]

    def __init__(self, address: str, name: str, result: Result, problems: Problems) -> None:
        with extra("postgres", "adbc_driver_postgresql"):
            from adbc_driver_postgresql import dbapi
        self._driver: Any = dbapi
        self._address, self._name, self._table = address, name, quoted(name)
        self._result, self._problems = result, problems
        self._connection: Any = None
        # By column: its type in the database, as far as it is one of ours.
        self._types: dict[str, str] = {}
        self._kinds = {column.name: column.type for column in result.columns}
        if taken := sorted(self.own.keys() & self._kinds.keys()):
            raise SinkRefused(
                f"table {name}: the view has a column {taken[0]!r}, which a sink needs; rename it with AS"
            )

    def open(self) -> None:
        """See Target. Raises SinkRefused where the table has not the view's columns."""
        if self._connection is not None:
            return
        try:
            self._connection = self._driver.connect(self._address, autocommit=False)
            self._prepare()
            self._connection.commit()
        except Exception as error:
            raise self._broken(error) from error

    def end(self) -> None:
        """See Target: libpq's own time limits hold."""
        return

    def close(self) -> None:
        """See Target."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(self._driver.Error):
                connection.close()

    def _prepare(self) -> None:
        columns = {name: _type_of(kind) for name, kind in self._kinds.items()} | self.own
        declared = [f"{quoted(name)} {type_}" for name, type_ in columns.items()]
        self._do(f"CREATE TABLE IF NOT EXISTS {self._table} ({', '.join(declared)}, {self._key()})")
        found = self._do(
            "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped",
            (self._table,),
        )
        there = dict(found)
        if missing := [name for name in columns if name not in there]:
            raise SinkRefused(
                f"table {self._name} has no column {missing[0]!r}; its columns are {', '.join(there)}: "
                "name another table, or let this one be made"
            )
        self._types = {name: there[name] for name in columns}

    @abstractmethod
    def _key(self) -> str:
        """The constraint that makes rows one."""

    def _do(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql, parameters or None)
            return list(cursor.fetchall()) if cursor.description else []

    def _broken(self, error: Exception) -> SinkError:
        """What has gone wrong; the connection is given up."""
        if not isinstance(error, self._driver.Error | SinkError):
            raise error
        self.close()
        if isinstance(error, SinkError):
            return error
        lines = [line for line in str(error).split("\n") if line.strip()]
        what = re.sub(r"//[^@/\s]*@", "//", lines[0] if lines else type(error).__name__)
        state = getattr(error, "sqlstate", None) or ""
        kind = SinkError if not state or state.startswith(_PASSING) else SinkRefused
        return kind(f"table {self._name}: {what}")

    def _recordset(self, parameter: str = "$1") -> str:
        """The rows of a JSON document as a table of their types."""
        declared = ", ".join(f"{quoted(name)} {type_}" for name, type_ in self._types.items())
        return f"json_to_recordset({parameter}::text::json) AS given({declared})"

    def _document(self, changes: Iterable[RowChange]) -> str:
        rows = []
        for change in changes:
            stamp, switch, seq = change.version
            row: dict[str, Any] = {name: self._value(name, one) for name, one in change.row.items()}
            row["_key"], row["_multiplicity"] = key_text(change.key), change.multiplicity
            row["_stamp"], row["_switch"], row["_seq"] = stamp, switch, seq
            row["_op"] = change.op
            rows.append(row)
        # A key is text that holds JSON, in which a NUL is written out.
        return encode_json(rows).decode()

    def _value(self, name: str, value: Value) -> Any:
        if isinstance(value, str):
            if "\0" in value:
                self._problems.add(
                    "NUL in a text", f"{self._name}.{name}", f"{value[:20]!r}; written as U+FFFD"
                )
                return value.replace("\0", "\ufffd")
            return value
        if self._kinds[name].kind is Kind.TIMESTAMP and isinstance(value, int):
            return value if self._types[name] in ("bigint", "numeric") else moment(value)
        return json_value(value)


class PostgresRows(PostgresTable):
    """A table that holds the present rows of a view: see RowTarget.

    A row is changed by none of an older version.
    """

    own = _ROWS

    def __init__(self, address: str, name: str, result: Result, problems: Problems) -> None:
        super().__init__(address, name, result, problems)
        self._generation: int | None = None

    def write(self, changes: list[RowChange]) -> None:
        """See Target; all of them, or none."""
        # NaN is not equal to itself, and so a key twice; the server takes a key once.
        latest = {key_text(change.key): change for change in changes}.values()
        gone = [change for change in latest if change.op == "delete"]
        there = [change for change in latest if change.op != "delete"]
        try:
            self._take_turn(max(change.version for change in changes))
            if gone:
                self._do(
                    f"DELETE FROM {self._table} t USING {self._recordset()} "
                    "WHERE t._key = given._key AND (t._stamp, t._switch, t._seq) "
                    "<= (given._stamp, given._switch, given._seq)",
                    (self._document(gone),),
                )
            if there:
                self._do(
                    f"{self._insert(self._recordset())} ON CONFLICT (_key) DO UPDATE SET {self._set()} "
                    "WHERE (t._stamp, t._switch, t._seq) "
                    "<= (excluded._stamp, excluded._switch, excluded._seq)",
                    (self._document(there),),
                )
            self._connection.commit()
        except Exception as error:
            raise self._broken(error) from error

    def replace(self, rows: list[RowChange], version: Version) -> None:
        """See RowTarget; rows that are there as they are to be stay as they were written."""
        own = [name for name in self._types if name not in _VERSION]
        old, new = (", ".join(f"{one}.{quoted(name)}" for name in own) for one in ("t", "excluded"))
        try:
            self._take_turn(version)
            self._do("DROP TABLE IF EXISTS pg_temp.orderbook_rows")
            declared = ", ".join(f"{quoted(name)} {type_}" for name, type_ in self._types.items())
            self._do(f"CREATE TEMPORARY TABLE orderbook_rows ({declared}) ON COMMIT DROP")
            names = ", ".join(map(quoted, self._types))
            for start in range(0, len(rows), _TOGETHER):
                self._do(
                    f"INSERT INTO orderbook_rows ({names}) SELECT {names} FROM {self._recordset()}",
                    (self._document(rows[start : start + _TOGETHER]),),
                )
            self._do(
                f"DELETE FROM {self._table} t "
                "WHERE NOT EXISTS (SELECT FROM orderbook_rows o WHERE o._key = t._key)"
            )
            # A version that is later than that of now is of another clock, and would keep the row for ever.
            self._do(
                f"{self._insert('orderbook_rows AS given')} ON CONFLICT (_key) DO UPDATE SET {self._set()} "
                f"WHERE ({old}) IS DISTINCT FROM ({new}) OR (t._stamp, t._switch, t._seq) "
                "> (excluded._stamp, excluded._switch, excluded._seq)"
            )
            self._connection.commit()
        except Exception as error:
            raise self._broken(error) from error

    def _prepare(self) -> None:
        super()._prepare()
        self._do(
            "CREATE TABLE IF NOT EXISTS orderbook_sinks (target text PRIMARY KEY, "
            "generation bigint NOT NULL, _stamp bigint, _switch integer, _seq bigint)"
        )
        if self._generation is None:
            found = self._do(
                "INSERT INTO orderbook_sinks AS t (target, generation) VALUES ($1, 1) "
                "ON CONFLICT (target) DO UPDATE SET generation = t.generation + 1 RETURNING generation",
                (self._name,),
            )
            self._connection.commit()
            self._generation = int(found[0][0])

    def _take_turn(self, version: Version) -> None:
        """Waits until a run before this one has written. Raises SinkRefused where there is a later one."""
        found = self._do(
            "UPDATE orderbook_sinks SET _stamp = $3, _switch = $4, _seq = $5 "
            "WHERE target = $1 AND generation = $2 RETURNING generation",
            (self._name, self._generation, *version),
        )
        if not found:
            raise SinkRefused(f"table {self._name}: another run writes it since; stop one of them")

    def _insert(self, given: str) -> str:
        names = ", ".join(map(quoted, self._types))
        return f"INSERT INTO {self._table} AS t ({names}) SELECT {names} FROM {given}"

    def _set(self) -> str:
        return ", ".join(
            f"{quoted(name)} = excluded.{quoted(name)}" for name in self._types if name != "_key"
        )

    def _key(self) -> str:
        return "PRIMARY KEY (_key)"


class PostgresChanges(PostgresTable):
    """A table to which every change of a view is appended, once: see Target.

    Of a delete it has the row that is gone. One that comes again, by its version and key, is passed over.
    """

    own = _CHANGES

    def write(self, changes: list[RowChange]) -> None:
        """See Target; all of them, or none."""
        names = ", ".join(map(quoted, self._types))
        try:
            self._do(
                f"INSERT INTO {self._table} ({names}) SELECT {names} FROM {self._recordset()} "
                "ON CONFLICT (_stamp, _switch, _seq, _key) DO NOTHING",
                (self._document(changes),),
            )
            self._connection.commit()
        except Exception as error:
            raise self._broken(error) from error

    def _key(self) -> str:
        return "PRIMARY KEY (_stamp, _switch, _seq, _key)"


def moment(ns: int) -> str:
    """A time of ns since 1970 UTC as PostgreSQL reads it, with µs."""
    return (_EPOCH + timedelta(microseconds=ns // 1000)).isoformat(" ")


def _type_of(kind: Type) -> str:
    """The type of a column that is made; integers that may have more than 64 bits are numeric."""
    if kind.kind is Kind.INTEGER and max(abs(kind.low), abs(kind.high)) > 2**63 - 1:
        return "numeric"
    return _TYPES[kind.kind]
