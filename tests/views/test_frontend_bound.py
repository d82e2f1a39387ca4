"""Bound queries as text, and their meaning against DuckDB running the SQL they came from."""

import math
import random
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pytest
from bound_support import BOUND, PARAMETERS, Tables, rows_of

from orderbook.views.binding.bound import Catalog
from orderbook.views.binding.bound_print import bound_text
from orderbook.views.binding.catalog import bind
from orderbook.views.types import Column, Kind, Relation

PAIRS = sorted(BOUND.glob("*.sql"))
DUCKDB_TYPES = {
    Kind.INTEGER: "BIGINT",
    Kind.DOUBLE: "DOUBLE",
    Kind.BOOLEAN: "BOOLEAN",
    Kind.TEXT: "VARCHAR",
    Kind.TIMESTAMP: "BIGINT",
}


def bound(path: Path) -> Catalog:
    return bind([(path.name, path.read_text(encoding="utf-8"))], PARAMETERS)


@pytest.mark.parametrize("path", PAIRS, ids=lambda p: p.stem)
def test_bound_text(path: Path) -> None:
    text = "\n".join(bound_text(view) for view in bound(path).views)
    assert text == path.with_suffix(".txt").read_text(encoding="utf-8")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("path", PAIRS, ids=lambda p: p.stem)
def test_means_what_duckdb_means(path: Path) -> None:
    catalog = bound(path)
    rows_seen = 0
    with database().cursor() as connection:
        declare(connection, catalog, path.stem)
        for seed in range(4):
            tables = {r.name: random_rows(r, seed, path.stem) for r in catalog.relations}
            load(connection, catalog, tables)
            for view in catalog.views:
                expected = connection.execute(f'SELECT * FROM "{view.name}"').fetchall()
                actual = [tuple(row.values()) for row in rows_of(view.query, tables)]
                rows_seen += len(expected)
                assert_same(actual, expected, f"{view.name}, seed {seed}")
    assert rows_seen > 0, "no data set gave a row, so nothing was compared"


@cache
def database() -> duckdb.DuckDBPyConnection:
    """One for all, with a schema for each: starting another takes 15 ms."""
    return duckdb.connect()


def declare(connection: duckdb.DuckDBPyConnection, catalog: Catalog, schema: str) -> None:
    """The relations and views of the catalog in a schema of DuckDB, with x/0 as NULL."""
    connection.execute("SET ieee_floating_point_ops = false; SET error_on_division_by_zero = false")
    connection.execute(f'CREATE SCHEMA "{schema}"; USE "{schema}"')
    for relation in catalog.relations:
        columns = ", ".join(f'"{c.name}" {duckdb_type(c)}' for c in relation.columns)
        connection.execute(f'CREATE TABLE "{relation.name}" ({columns})')
    for view in catalog.views:
        sql = view.sql
        for name, value in PARAMETERS.items():
            sql = sql.replace(f":{name}", f"'{value}'" if isinstance(value, str) else str(value))
        head = "" if sql.upper().startswith("CREATE") else f'CREATE VIEW "{view.name}" AS '
        connection.execute(head + sql)


def load(connection: duckdb.DuckDBPyConnection, catalog: Catalog, tables: Tables) -> None:
    """These rows instead of those that are there."""
    for relation in catalog.relations:
        connection.execute(f'TRUNCATE "{relation.name}"')
        rows = [tuple(plain(v) for v in row.values()) for row in tables[relation.name]]
        if rows:
            row = f"({', '.join('?' for _ in relation.columns)})"
            insert = f'INSERT INTO "{relation.name}" VALUES {", ".join([row] * len(rows))}'
            connection.execute(insert, [value for values in rows for value in values])


def duckdb_type(column: Column) -> str:
    """Fewer digits than declared, so that DuckDB's products stay inside its own 38."""
    if column.type.kind is Kind.DECIMAL:
        return "DECIMAL(7, 2)"
    return DUCKDB_TYPES[column.type.kind]


def plain(value: Any) -> Any:
    return Decimal(value.numerator) / Decimal(value.denominator) if isinstance(value, Fraction) else value


def random_rows(relation: Relation, seed: int, name: str) -> list[dict[str, Any]]:
    draw = random.Random(f"{name}{seed}{relation.name}")
    count = draw.randint(4 if seed else 0, 8)
    return [{c.name: random_value(c, draw) for c in relation.columns} for _ in range(count)]


def random_value(column: Column, draw: random.Random) -> Any:
    """Few distinct values, so that rows join, tie and fall in the same group."""
    if column.nullable and draw.random() < 0.3:
        return None
    kind = column.type
    low, high = max(kind.low, -(10**kind.scale)), min(kind.high, 4 * 10**kind.scale)
    match kind.kind:
        case Kind.TEXT:
            return draw.choice(["a", "it's", "AMZN", "BTC-USD", "BUILDING"])
        case Kind.BOOLEAN:
            return draw.random() < 0.5
        case Kind.DOUBLE:
            return draw.randint(-8, 16) / 4
        case Kind.DECIMAL:
            return Fraction(draw.randint(math.ceil(low * 2 / 10**kind.scale), high * 2 // 10**kind.scale), 2)
    return draw.randint(low, high)


def assert_same(actual: list[tuple[Any, ...]], expected: list[tuple[Any, ...]], what: str) -> None:
    """Equal as multisets; exact values exactly, doubles to 1e-9."""
    assert sorted(map(comparable, actual)) == sorted(map(comparable, expected)), what


def comparable(row: tuple[Any, ...]) -> list[tuple[bool, str]]:
    return [(v is None, str(v) if isinstance(v, str | None) else f"{float(v):.9g}") for v in row]
