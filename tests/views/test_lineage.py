"""Lineage of views: as it is written down, and as DuckDB shows it by what changes of columns change."""

from random import Random

import duckdb
import pytest
from oracle import Oracle, SqlValue, difference, ordered
from random_queries_choices import Choices
from random_queries_grammar import COLUMNS, STREAMS, VALUES, Grammar

from orderbook.configuration.configuration import load_configuration
from orderbook.core.errors import OrderbookError
from orderbook.views.compilation import bound_source, compile_views, texts_of
from orderbook.views.library import shipped_that_declares, shipped_views, with_read
from orderbook.views.lineage import Lineage, lineage, lineage_json, lineage_lines

RELATIONS = """
CREATE STREAM a (k BIGINT NOT NULL, x BIGINT NOT NULL, y BIGINT, ts TIMESTAMP NOT NULL, PRIMARY KEY (k, ts));
CREATE STREAM b (k BIGINT NOT NULL, z BIGINT NOT NULL, ts TIMESTAMP NOT NULL, PRIMARY KEY (k, ts));
CREATE VIEW sums AS SELECT k AS key, SUM(x) AS s, COUNT(*) AS n FROM a WHERE y > 0 GROUP BY k;
"""


def lineage_of(query: str) -> Lineage:
    catalog = compile_views(f"{RELATIONS}CREATE VIEW v AS {query};").catalog
    return lineage(catalog.views[-1].query)


ROWS = "its rows"
WRITTEN: dict[str, dict[str, str]] = {
    "SELECT k AS key, x + y AS s, 3 AS c FROM a": {
        "key": "identity a.k",
        "s": "transformation a.x, a.y",
        "c": "constants",
    },
    "SELECT COUNT(*) AS n, COUNT(y) AS m, COUNT(DISTINCT x) AS d, CORR(x, y) AS c FROM a": {
        "n": "aggregation a.*",
        "m": "aggregation a.y",
        "d": "aggregation a.x",
        "c": "aggregation a.x, a.y",
    },
    # What aggregates and conditions only choose by.
    "SELECT ARG_MAX(x, ts) AS last, SUM(x) FILTER (WHERE y > 0) AS s, CASE WHEN k > 1 THEN 1 END AS c FROM a "
    "GROUP BY k HAVING MIN(x) > 0": {
        "last": "aggregation a.x; sort a.ts",
        "s": "aggregation a.x; conditional a.y",
        "c": "conditional a.k",
        ROWS: "group by a.k; filter a.x",
    },
    # CTEs and derived tables: an aggregate of an aggregate, computed with.
    "WITH t AS (SELECT k, SUM(x) AS s FROM a WHERE y > 3 GROUP BY k), u AS (SELECT k, s + 1 AS p FROM t) "
    "SELECT MAX(p) AS m, COUNT(*) AS n FROM u": {
        "m": "aggregation a.x",
        "n": "aggregation a.*",
        ROWS: "group by a.k; filter a.y",
    },
    # Views over views.
    "SELECT sums.key, s / n AS mean, z FROM sums JOIN b ON b.k = sums.key": {
        "key": "identity a.k",
        "mean": "aggregation a.x, a.*",
        "z": "identity b.z",
        ROWS: "group by a.k; join a.k, b.k; filter a.y",
    },
    # Correlated aggregates, nested, and one in an aggregate.
    "SELECT k, (SELECT SUM(z) FROM b WHERE b.k = a.k AND b.ts > (SELECT MIN(c.ts) FROM a c)) AS s FROM a": {
        "k": "identity a.k",
        "s": "aggregation b.z; join b.k, a.k; filter b.ts, a.ts",
    },
    "SELECT SUM(x * (SELECT SUM(z) FROM b WHERE b.k = a.k)) AS s FROM a": {
        "s": "aggregation a.x, b.z; join b.k, a.k",
    },
    "SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k)": {
        "k": "identity a.k",
        ROWS: "filter b.*, b.k, a.k",
    },
    "SELECT x > ALL (SELECT z FROM b) AS c FROM a": {"c": "aggregation b.*; join a.x, b.z"},
    # Joins by columns of both.
    "SELECT k, x, z FROM a JOIN b USING (k, ts)": {
        "k": "identity a.k",
        "x": "identity a.x",
        "z": "identity b.z",
        ROWS: "join a.k, b.k, a.ts, b.ts",
    },
    "SELECT k, COUNT(*) AS n FROM a FULL JOIN b USING (k) GROUP BY k": {
        "k": "transformation a.k, b.k",
        "n": "aggregation a.*, b.*",
        ROWS: "group by a.k, b.k; join a.k, b.k",
    },
    "SELECT a.k, z FROM a LEFT JOIN b ON a.k = b.k AND x > 3 WHERE y < 3": {
        "k": "identity a.k",
        "z": "identity b.z",
        ROWS: "join a.k, b.k, a.x; filter a.y",
    },
    "SELECT a.k, l.m FROM a, LATERAL (SELECT MAX(z) AS m FROM b WHERE b.k = a.k) AS l": {
        "k": "identity a.k",
        "m": "aggregation b.z; join b.k, a.k",
    },
    "SELECT x FROM a, b": {"x": "identity a.x"},
    # Columns of unions by their places; those of another type in one branch are cast.
    "SELECT k, x FROM a UNION ALL SELECT z + 1, k FROM b WHERE ts > NOW()": {
        "k": "transformation a.k, b.z",
        "x": "identity a.x, b.k",
        ROWS: "filter b.ts, clock.now",
    },
    "SELECT k FROM a EXCEPT SELECT z FROM b": {"k": "identity a.k, b.z", ROWS: "group by a.k, b.z"},
    "SELECT DISTINCT k FROM a": {"k": "identity a.k", ROWS: "group by a.k"},
    # Windows, also those of which the rows are chosen by.
    "SELECT SUM(y) OVER (PARTITION BY k ORDER BY ts) AS s, LAG(x) OVER (PARTITION BY k ORDER BY ts) AS l, "
    "ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) AS r, "
    "AVG(x) OVER (PARTITION BY k ORDER BY ts ROWS 3 PRECEDING) AS a FROM a": {
        "s": "aggregation a.y; window a.k, a.ts",
        "l": "transformation a.x; window a.k, a.ts",
        "r": "aggregation a.*; window a.k, a.ts",
        "a": "aggregation a.x; window a.k, a.ts",
    },
    "SELECT x FROM a QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) <= 2": {
        "x": "identity a.x",
        ROWS: "window a.k; sort a.ts",
    },
    "SELECT k FROM a WHERE y > 0 ORDER BY x LIMIT 3": {"k": "identity a.k", ROWS: "sort a.x; filter a.y"},
}


@pytest.mark.parametrize("query", WRITTEN)
def test_uses_of_columns(query: str) -> None:
    _, *lines = lineage_lines(lineage_of(query))
    assert dict(line.split(": ", 1) for line in lines) == WRITTEN[query]


def test_relations_are_named_of_which_no_column_is_used() -> None:
    found = lineage_of("SELECT x FROM a, b")
    assert next(lineage_lines(found)) == "reads a, b"
    assert lineage_json(found) == {
        "inputs": ["a", "b"],
        "fields": {
            "x": {
                "inputFields": [
                    {
                        "name": "a",
                        "field": "x",
                        "transformations": [{"type": "DIRECT", "subtype": "IDENTITY"}],
                    }
                ]
            }
        },
        "dataset": [],
    }


def test_every_shipped_view_has_lineage() -> None:
    parameters = load_configuration(None, {}).parameters
    for file in shipped_views().values():
        catalog = bound_source(texts_of(with_read([file], shipped_that_declares)), parameters).catalog
        columns = {r.name: {c.name for c in r.columns} for r in catalog.relations}
        for view in catalog.views:
            found = lineage(view.query)
            assert list(found.columns) == [o.name for o in view.query.outputs]
            assert set(found.relations) <= columns.keys()
            for one in (*found.rows, *(i for own in found.columns.values() for i in own)):
                assert one.uses and one.relation in found.relations
                assert one.column is None or one.column in columns[one.relation]


def test_no_other_column_changes_a_column(sample_seed: int) -> None:
    """Other values in a column that is not in the lineage of an output leave that output as it is."""
    oracle, compared = Oracle(STREAMS), 0
    for number in range(60):
        random = Random(f"{sample_seed} {number}")
        query = Grammar(Choices(f"{sample_seed} lineage {number}")).query()
        try:
            catalog = bound_source(texts_of(f"{STREAMS}CREATE VIEW v AS {query};"), {}).catalog
            oracle.replace_views({"v": query})
            oracle.rows("v")
        except (OrderbookError, duckdb.Error):
            continue
        found = lineage(catalog.views[-1].query)
        tables = {name: [_row(random, name) for _ in range(8)] for name in found.relations}
        before = _columns(oracle, tables, found)
        for relation, rows in tables.items():
            for place, column in enumerate(COLUMNS[relation]):
                key = relation, column
                chosen = any((i.relation, i.column) == key for i in found.rows)
                others = [
                    name
                    for name, own in found.columns.items()
                    if not chosen and all((i.relation, i.column) != key for i in own)
                ]
                if not others:
                    continue
                values = [random.choice(VALUES[relation][column]) for _ in rows]
                changed = [(*r[:place], v, *r[place + 1 :]) for r, v in zip(rows, values, strict=True)]
                after = _columns(oracle, {**tables, relation: changed}, found)
                for name in others:
                    compared += 1
                    wrong = difference(before[name], after[name])
                    assert not wrong, f"{query}\n{name} is changed by {relation}.{column}: {wrong}"
    assert compared > 100, compared


def _row(random: Random, relation: str) -> tuple[SqlValue, ...]:
    return tuple(random.choice(VALUES[relation][column]) for column in COLUMNS[relation])


def _columns(
    oracle: Oracle, tables: dict[str, list[tuple[SqlValue, ...]]], found: Lineage
) -> dict[str, list[tuple[SqlValue, ...]]]:
    """The values of each column of the view, sorted."""
    oracle.clear()
    for relation, rows in tables.items():
        for row in rows:
            oracle.insert(relation, row)
    answer = oracle.rows("v")
    return {name: ordered([(row[at],) for row in answer]) for at, name in enumerate(found.columns)}
