"""Views recomputed by DuckDB from the same SQL text: shares no code with the compiler or the runtimes.

Exact columns become HUGEINT and DECIMAL(38, s), so that sums do not overflow; division by zero is NULL, so is
NaN. Rows are compared as multisets, doubles within a relative error. One thing DuckDB rounds: a COALESCE
of a DECIMAL(38, s) with a value of more places; views to compare give its arguments one scale.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cache
from itertools import count

import duckdb

SqlValue = int | Decimal | float | str | bool | None
Row = tuple[SqlValue, ...]

RELATIVE_ERROR = 1e-9
_CREATE = re.compile(r"CREATE\s+(?P<what>STREAM|TABLE|VIEW)\s+(?P<name>\w+)\s*(?P<rest>.*)", re.I | re.S)
_COLUMN = re.compile(r"(?P<name>\w+)\s+(?P<type>\w+)(?:\s*\(\s*\d+\s*(?:,\s*(?P<scale>\d+)\s*)?\))?", re.S)
_TYPES = {
    "SMALLINT": "HUGEINT",
    "INTEGER": "HUGEINT",
    "INT": "HUGEINT",
    "BIGINT": "HUGEINT",
    "TIMESTAMP": "HUGEINT",
    "DOUBLE": "DOUBLE",
    "BOOLEAN": "BOOLEAN",
    "TEXT": "VARCHAR",
    "VARCHAR": "VARCHAR",
}


class Oracle:
    """The relations and views of an SQL text in a schema of their own.

    few_rows: plans are not optimised, which takes longer than what it saves on some tens of rows.
    """

    def __init__(self, sql: str, parameters: Mapping[str, SqlValue] | None = None, *, few_rows: bool = False):
        self._connection = database(few_rows).cursor()
        self._connection.execute("SET error_on_division_by_zero = false; SET ieee_floating_point_ops = false")
        schema = f"oracle_{next(_numbers)}"
        self._connection.execute(f"CREATE SCHEMA {schema}; USE {schema}")
        self.columns: dict[str, tuple[str, ...]] = {}
        self.views: list[str] = []
        # By relation: how many rows it was ever given, as DuckDB numbers them; and which of them a row is.
        self._given: dict[str, int] = {}
        self._places: dict[str, dict[Row, list[int]]] = {}
        for statement in _statements(sql):
            self._declare(statement, parameters or {})

    def _declare(self, statement: str, parameters: Mapping[str, SqlValue]) -> None:
        if statement.upper().startswith(("CREATE MACRO", "CREATE FUNCTION")):
            self._connection.execute(statement)
            return
        match = _CREATE.fullmatch(statement)
        name, rest = (match["name"], match["rest"]) if match else ("view", f"AS {statement}")
        if match and match["what"].upper() != "VIEW":
            columns = dict(_columns(rest))
            self.columns[name] = tuple(columns)
            body = ", ".join(f'"{column}" {kind}' for column, kind in columns.items())
            self._connection.execute(f'CREATE TABLE "{name}" ({body})')
            return
        query = re.sub(
            r"(?<![:\w]):(\w+)", lambda m: _literal(parameters[m[1]]) if m[1] in parameters else m[0], rest
        )
        self._connection.execute(f'CREATE VIEW "{name}" {query}')
        self.views.append(name)

    def replace_views(self, views: Mapping[str, str]) -> None:
        """Has these views, by their SELECT, in place of all others."""
        for name in self.views:
            self._connection.execute(f'DROP VIEW "{name}"')
        self.views = []
        for name, query in views.items():
            self._connection.execute(f'CREATE VIEW "{name}" AS {query}')
            self.views.append(name)

    def insert(self, relation: str, row: Row) -> None:
        """Adds one copy of a row."""
        self._connection.execute(f'INSERT INTO "{relation}" VALUES ({", ".join("?" * len(row))})', row)
        place = self._given.get(relation, 0)
        self._given[relation] = place + 1
        self._places.setdefault(relation, {}).setdefault(row, []).append(place)

    def delete(self, relation: str, row: Row) -> None:
        """Removes exactly one copy of a row; raises LookupError where there is none."""
        places = self._places.get(relation, {}).get(row)
        if not places:
            raise LookupError(f"{relation} has no row {row}")
        # To look for it by its values takes twice as long.
        place = f'DELETE FROM "{relation}" WHERE rowid = {places.pop()}'
        same = "".join(f' AND "{c}" IS NOT DISTINCT FROM ?' for c in self.columns[relation])
        deleted = self._connection.execute(place + same, row).fetchone()
        assert deleted == (1,), f"{relation} has {row} elsewhere"

    def clear(self) -> None:
        """Empties every relation."""
        for relation in self.columns:
            self._connection.execute(f'TRUNCATE "{relation}"')
        self._places.clear()

    def rows(self, view: str) -> list[Row]:
        """The view's rows, sorted; decimals and integers exact, NULL as None."""
        rows = self._connection.execute(f'SELECT * FROM "{view}"').fetchall()
        return ordered([tuple(None if v != v else v for v in row) for row in rows])


_numbers = count()


@cache
def database(few_rows: bool) -> duckdb.DuckDBPyConnection:
    """One for all oracles: starting another takes 15 ms and 5 MB."""
    connection = duckdb.connect(config={"threads": 1})
    if few_rows:
        found = connection.execute("SELECT name FROM duckdb_optimizers()").fetchall()
        connection.execute(f"SET disabled_optimizers = '{','.join(name for (name,) in found)}'")
    return connection


def ordered(rows: Sequence[Row]) -> list[Row]:
    """Rows sorted by their exact columns, then by their doubles, NULL first."""

    def key(row: Row) -> list[tuple[bool, SqlValue]]:
        exact = [(v is not None, 0 if v is None or isinstance(v, float) else v) for v in row]
        return exact + [(True, v if isinstance(v, float) else 0.0) for v in row]

    return sorted(rows, key=key)


def difference(expected: Sequence[Row], found: Sequence[Row]) -> str | None:
    """What tells two sorted lists of rows apart, or None."""
    if len(expected) == len(found) and all(map(_same_row, expected, found)):
        return None
    return f"expected {list(expected)}, found {list(found)}"


def _same_row(expected: Row, found: Row) -> bool:
    return len(expected) == len(found) and all(map(_same_value, expected, found))


def _same_value(expected: SqlValue, found: SqlValue) -> bool:
    """Equal, and of one kind: exact number, double, text or boolean; NULL equals NULL only."""
    if isinstance(expected, float) and isinstance(found, float):
        return math.isclose(expected, found, rel_tol=RELATIVE_ERROR, abs_tol=RELATIVE_ERROR)
    if isinstance(expected, int | Decimal) and isinstance(found, int | Decimal):
        return isinstance(expected, bool) == isinstance(found, bool) and expected == found
    return type(expected) is type(found) and expected == found


def _statements(sql: str) -> Iterator[str]:
    plain = re.sub(r"--[^\n]*", "", sql)
    return (s.strip() for s in plain.split(";") if s.strip())


def _columns(rest: str) -> Iterator[tuple[str, str]]:
    """Column names and DuckDB types of the parenthesised list that `rest` begins with."""
    for item in _items(rest):
        if re.match(r"(CHECK|PRIMARY KEY)\b", item, re.I):
            continue
        match = _COLUMN.match(item)
        assert match, f"not a column: {item}"
        kind = match["type"].upper()
        yield (
            match["name"],
            f"DECIMAL(38, {match['scale'] or 0})" if kind in ("DECIMAL", "NUMERIC") else _TYPES[kind],
        )


def _items(rest: str) -> list[str]:
    items, depth = [""], 0
    for character in rest:
        depth += (character == "(") - (character == ")")
        if depth == 0:
            break
        if character == "," and depth == 1:
            items.append("")
        elif depth > 1 or character != "(":
            items[-1] += character
    return [i.strip() for i in items]


def _literal(value: SqlValue) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return "NULL" if value is None else repr(value) if isinstance(value, float) else str(value)
