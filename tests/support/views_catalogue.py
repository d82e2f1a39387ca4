"""Views that together use every construct of the language, over streams of small domains.

Each entry is one SQL text of views; the streams it may read are declared in `BOOKS`, `TABLES` and
`PAPERS`, and `DOMAINS` holds the values a column takes: ties, boundaries, 0, and NULL where allowed.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from oracle import SqlValue
from views_catalogue_costs import COSTS
from views_catalogue_dense import DENSE, LADDER
from views_catalogue_everyday import EVERYDAY, MACROS, ORDINARY, ORDINARY_TEXTS
from views_catalogue_finance import FINANCE, LEVELS, PAPER_QUERIES, PAPERS, SOBI, VWAP
from views_catalogue_found import FOUND
from views_catalogue_language import LANGUAGE
from views_catalogue_nulls import NULL_VIEWS, NULLS, NULLS_DOMAINS
from views_catalogue_predicates import PREDICATES
from views_catalogue_queries import QUERIES
from views_catalogue_ranks import RANKS
from views_catalogue_texts import TEXT_VIEWS, TEXTS, TEXTS_DOMAINS
from views_catalogue_trading import TRADING, TRADING_DOMAINS, TRADING_SCHEMA
from views_catalogue_windows import WINDOWS

from orderbook.views.types import Parameter

BOOKS = """
CREATE STREAM bids (t TIMESTAMP NOT NULL, symbol TEXT NOT NULL, id INTEGER NOT NULL,
                    broker_id INTEGER NOT NULL, volume INTEGER NOT NULL CHECK (volume >= 0),
                    price INTEGER NOT NULL);
CREATE STREAM asks (t TIMESTAMP NOT NULL, symbol TEXT NOT NULL, id INTEGER NOT NULL,
                    broker_id INTEGER NOT NULL, volume INTEGER NOT NULL CHECK (volume >= 0),
                    price INTEGER NOT NULL);
"""

TABLES = """
CREATE STREAM r (a INTEGER, b INTEGER NOT NULL, c BIGINT);
CREATE STREAM s (b INTEGER NOT NULL, c INTEGER, d DECIMAL(9, 2));
CREATE STREAM u (k INTEGER, x DOUBLE, y DOUBLE NOT NULL, label TEXT, seen TIMESTAMP, flag BOOLEAN);
CREATE STREAM fine (id INTEGER NOT NULL, amount DECIMAL(12, 3) NOT NULL, rate DECIMAL(6, 4));
CREATE STREAM wide (k INTEGER NOT NULL, v BIGINT NOT NULL, w DECIMAL(18, 8));
CREATE TABLE sectors (symbol TEXT NOT NULL, sector TEXT, tick DECIMAL(6, 2) NOT NULL);
"""

_KEYS = (1, 2)
_SMALL = (0, 1, 2, 3, -1)
_NULLABLE = (0, 1, 2, 3, -1, None)
_BOOK: Mapping[str, Sequence[SqlValue]] = {
    "t": (1, 2, 3),
    "symbol": ("A", "B"),
    "id": (1, 2),
    "broker_id": (1, 2),
    "volume": (1, 2, 4, 0, 3, 10_000),
    "price": (10, 11, 12, 1011, 1012, -5),
}


def _decimals(*texts: str) -> tuple[Decimal, ...]:
    return tuple(map(Decimal, texts))


# Doubles are multiples of 1/8, so that sums are exact and comparisons with them decided.
DOMAINS: Mapping[str, Mapping[str, Sequence[SqlValue]]] = {
    "bids": _BOOK,
    "asks": _BOOK,
    "ladder": {
        "symbol": ("A", "B"),
        "price": _decimals("9.5", "10.0", "10.1", "25.0", "39.9", "40.0"),
        "volume": (1, 2, 4, 0, 3, 1000),
    },
    "loose": {"price": (0, 1, 17, 50, None), "volume": (1, 2, 4, 0, 3)},
    "r": {"a": _NULLABLE, "b": _SMALL, "c": _NULLABLE},
    "s": {
        "b": _SMALL,
        "c": _NULLABLE,
        "d": (*_decimals("0.00", "1.00", "0.25", "-1.50", "9999999.99"), None),
    },
    "u": {
        "k": _NULLABLE,
        "x": (0.0, 0.5, 3.0, -1.25, -0.0, None),
        "y": (0.0, 2.0, -0.5, -0.0, 1000.125),
        "label": ("A", "B", "it's", None),
        "seen": (1, 2, 1_700_000_000_000_000_000, None),
        "flag": (True, False, None),
    },
    "fine": {
        "id": _SMALL,
        "amount": _decimals("0.000", "0.001", "2.000", "-1.500"),
        "rate": (*_decimals("0.5000", "0.0001", "-1.0000", "0.0000"), None),
    },
    "wide": {
        "k": _KEYS,
        "v": (0, 1, 2**63 - 1, -(2**63 - 1), 2**62),
        "w": (*_decimals("0.00000001", "9999999999.99999999", "-9999999999.99999999"), None),
    },
    "sectors": {"symbol": ("A", "B", "C"), "sector": ("x", "y", None), "tick": _decimals("0.01", "0.50")},
    "customer": {"custkey": _KEYS, "name": ("n",), "nationkey": _KEYS, "acctbal": (0, 5)},
    "orders": {"custkey": _KEYS, "ordkey": _KEYS, "sprior": _KEYS},
    "lineitem": {"ordkey": _KEYS, "extprice": (1, 2, 0, -3)},
    "customers": {"cid": _KEYS, "nation": _KEYS},
    "cumulus_orders": {"cid": _KEYS, "oid": _KEYS, "discount": (1, 2, 0)},
    "lineitems": {"oid": _KEYS, "price": (1, 2, 0, -3)},
}


@dataclass(frozen=True, slots=True)
class Entry:
    """Views to test: `sql` with their streams, what its parameters stand for, values instead of `DOMAINS`."""

    name: str
    sql: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    domains: Mapping[str, Mapping[str, Sequence[SqlValue]]] = field(default_factory=dict)

    def domain(self, relation: str, column: str) -> Sequence[SqlValue]:
        """The values that a column takes."""
        return self.domains.get(relation, {}).get(column) or DOMAINS[relation][column]


def _queries(text: str) -> dict[str, str]:
    """Queries by name: each follows a line `-- name`."""
    parts = re.split(r"^-- (\w+)$", text, flags=re.M)
    return {name: query.strip() for name, query in zip(parts[1::2], parts[2::2], strict=True)}


def _entry(schema: str, name: str, query: str, **options: object) -> Entry:
    text = query if "CREATE VIEW" in query else f"CREATE VIEW {name} AS {query}"
    return Entry(name, schema + text, **options)  # type: ignore[arg-type]


AGGREGATES = _queries("""
-- totals
SELECT SUM(c) AS total, COUNT(*) AS n, COUNT(c) AS m, AVG(c) AS mean FROM r
-- totals_filtered
SELECT SUM(b) AS total, COUNT(*) AS n, AVG(b) AS mean FROM r WHERE a > 1
-- by_nullable
SELECT a, SUM(c) AS total, COUNT(*) AS n, COUNT(c) AS m, AVG(c) AS mean FROM r GROUP BY a
-- by_two
SELECT a, b, SUM(c) AS total, COUNT(a) AS n FROM r GROUP BY a, b
-- by_expression
SELECT a + b AS g, COUNT(*) AS n, SUM(c) AS total FROM r GROUP BY a + b
-- by_condition
SELECT c > 1 AS big, COUNT(*) AS n, SUM(a) AS total FROM r GROUP BY c > 1
-- by_hidden
SELECT SUM(c) AS total FROM r GROUP BY a
-- by_coalesced
SELECT COALESCE(a, c, -1) AS g, COUNT(*) AS n FROM r GROUP BY COALESCE(a, c, -1)
-- only_groups
SELECT b FROM r GROUP BY b
-- arithmetic
SELECT a, SUM(c) * 2 - COUNT(*) AS x, SUM(c * b) + SUM(c) * SUM(b) AS y, -SUM(c) AS z FROM r GROUP BY a
-- ratios
SELECT a, SUM(b) / SUM(c) AS x, SUM(c) / COUNT(*) AS y, 1 / SUM(b) AS z, AVG(b) - AVG(c) AS w FROM r GROUP
    BY a
-- coalesced
SELECT COALESCE(SUM(c), 0) AS x, COALESCE(AVG(c), -1) AS y, COALESCE(SUM(c), SUM(a), 7) AS z,
    COALESCE(SUM(a) * (SUM(c) + 5), 0) AS w FROM r
-- decimals
SELECT id, SUM(amount) AS x, SUM(amount * rate) AS y, SUM(amount) * 0.5 + COUNT(*) AS z, AVG(rate) AS w,
    SUM(rate - amount) AS v FROM fine GROUP BY id
-- doubles
SELECT k, SUM(x) AS s, AVG(x) AS m, COUNT(x) AS n, SUM(x * y + k) AS p, SUM(x) / SUM(y) AS q FROM u GROUP BY
    k
-- by_double
SELECT y, COUNT(*) AS n, SUM(k) AS total FROM u GROUP BY y
-- by_text_and_time
SELECT label, seen, COUNT(*) AS n, SUM(y) AS total FROM u GROUP BY label, seen
-- by_flag
SELECT flag, COUNT(*) AS n, COUNT(flag) AS m FROM u GROUP BY flag
-- wide_sums
SELECT k, SUM(v) AS s, SUM(w) AS t, SUM(v) / COUNT(*) AS m FROM wide GROUP BY k
-- wide_products
SELECT SUM(x.v * y.k) AS s, COUNT(*) AS n FROM wide x, wide y WHERE x.k = y.k AND x.v > y.v
""")

CONDITIONS = _queries("""
-- not_or
SELECT COUNT(*) AS n, SUM(b) AS total FROM r WHERE NOT (a > 1 OR c <= 2)
-- mixed_logic
SELECT b, COUNT(*) AS n FROM r WHERE (a = 1 AND b <> 2) OR NOT (c >= 2 AND a < c) GROUP BY b
-- comparisons
SELECT a, b, c FROM r WHERE a < c OR a >= b AND c <> b
-- implied
SELECT b, SUM(c) AS total FROM r WHERE a > 0 AND a >= 1 AND a < 3 AND NOT a > 2 GROUP BY b
-- implied_strict
SELECT COUNT(*) AS n, SUM(b) AS total FROM r WHERE a > 1 AND a >= 1 AND (c < 2 AND c <= 2 OR b > 2 AND b >= 2)
-- implied_across
SELECT COUNT(*) AS n FROM r, s WHERE r.b > s.b AND r.b >= s.b AND s.c < r.a AND s.c <= r.a
-- lists_and_ranges
SELECT a, COUNT(*) AS n FROM r WHERE a IN (1, 2, c) OR a IS NULL AND b BETWEEN 0 AND 2 GROUP BY a
-- not_in
SELECT a, b FROM r WHERE a NOT IN (1, c) AND c IS NOT NULL
-- never
SELECT COUNT(*) AS n, SUM(b) AS total FROM r WHERE b <> b OR a < a OR NULL
-- null_comparison
SELECT b, COUNT(*) AS n FROM r WHERE a = a GROUP BY b
-- texts
SELECT label, COUNT(*) AS n FROM u WHERE label = 'A' OR label <> 'it''s' GROUP BY label
-- flags
SELECT k, COUNT(*) AS n FROM u WHERE flag OR NOT flag AND k > 0 GROUP BY k
-- kinds
SELECT SUM(amount) AS total FROM fine WHERE amount >= id AND rate < 0.5 OR amount = rate
-- double_and_integer
SELECT k, SUM(x) AS total FROM u WHERE x > k OR x = 0.5 OR y <= x GROUP BY k
-- times
SELECT x.seen, COUNT(*) AS n FROM u x, u y WHERE x.seen > y.seen AND x.k = 1 GROUP BY x.seen
""")

PLAIN = _queries("""
-- computed
SELECT a, c + 1 AS d, a * c AS e, a / b AS f, -a AS g FROM r WHERE b > -1
-- duplicates
SELECT b FROM r
-- constant_rows
SELECT 1 AS one, 'x' AS x, 0.5 AS half FROM r WHERE a > 0
-- coalesce_columns
SELECT COALESCE(a, c) AS x, COALESCE(a, 0.5) AS y, COALESCE(c, b) * 2 AS z FROM r
-- plain_condition
SELECT a > c AS x, NOT (a = b OR c > 1) AS y, a IS NULL AS z FROM r
-- plain_join
SELECT r.a, s.d, r.c * s.d AS e FROM r, s WHERE r.b = s.b AND r.c > s.c
-- plain_subquery
SELECT a, (SELECT SUM(s.d) FROM s WHERE s.b = r.b) AS total, (SELECT COUNT(*) FROM s) AS n FROM r
-- plain_never
SELECT a, b FROM r WHERE NULL AND a > 1
-- plain_contradiction
SELECT a, b FROM r WHERE b < b OR a > 1 AND a <= 1
-- plain_always
SELECT a, b FROM r WHERE 1 < 2 OR a > 1
-- no_from_filtered
SELECT 1 AS one, (SELECT SUM(a) FROM r) AS total WHERE (SELECT COUNT(*) FROM r) > 1
-- no_from
SELECT (SELECT COUNT(*) FROM r) AS n, (SELECT SUM(s.d) FROM s) / (SELECT SUM(r.a) FROM r) AS q, 3 AS three
""")

JOINS = _queries("""
-- join_two
SELECT r.a, SUM(r.c * s.d) AS total, COUNT(*) AS n FROM r JOIN s ON r.b = s.b GROUP BY r.a
-- join_nullable
SELECT COUNT(*) AS n, SUM(r.b * s.b) AS total FROM r, s WHERE r.c = s.c
-- join_three
SELECT r.a, COUNT(*) AS n, SUM(s.d) AS total FROM r, s, fine f WHERE r.b = s.b AND s.c = f.id GROUP BY r.a
-- join_four
SELECT f.id, SUM(r.c * x.c) AS total FROM r, s, fine f, r x WHERE r.b = s.b AND s.c = f.id AND x.a = f.id
    GROUP BY f.id
-- join_expression
SELECT SUM(r.b) AS total, COUNT(*) AS n FROM r, s WHERE r.a + 1 = s.b AND s.c * 2 = r.c + s.b
-- join_constants
SELECT COUNT(*) AS n, SUM(s.d) AS total FROM r, s WHERE r.b = 1 AND s.b = r.b AND s.c = 2
-- join_kinds
SELECT COUNT(*) AS n, SUM(f.amount) AS total FROM s, fine f WHERE s.d = f.id AND f.amount = s.b
-- join_doubles
SELECT COUNT(*) AS n, SUM(p.x) AS total FROM u p, u q WHERE p.x = q.y
-- join_static
SELECT g.sector, SUM(b.volume * b.price * g.tick) AS total FROM bids b JOIN sectors g ON b.symbol = g.symbol
    GROUP BY g.sector
-- cross_join
SELECT SUM(r.a * s.d) AS total, COUNT(*) AS n, SUM(r.b) AS x FROM r CROSS JOIN s
-- cross_sum
SELECT SUM(r.a + s.d) AS total, SUM((r.a - s.b) * (r.b + s.c)) AS product FROM r, s
-- self_join
SELECT x.b, SUM(x.a * y.c) AS total, COUNT(*) AS n FROM r x, r y WHERE x.b = y.b GROUP BY x.b
-- self_join_square
SELECT SUM(x.b * y.b) AS total, COUNT(*) AS n FROM r x, r y
-- self_join_three
SELECT COUNT(*) AS n, SUM(x.a * y.c - z.b) AS total FROM r x, r y, r z WHERE x.a = y.b AND y.c = z.b
-- self_join_chain
SELECT x.c, SUM(y.a * COALESCE(z.a, x.b)) AS total FROM r x, r y, r z WHERE y.a < x.c AND z.a = y.c GROUP BY
    x.c
-- self_join_all
SELECT COUNT(*) AS n FROM r x, r y WHERE x.a = y.a AND x.b = y.b AND x.c = y.c
-- repeated_column
SELECT COUNT(*) AS n, SUM(s.d) AS total FROM r, s WHERE r.a = r.b AND s.b = r.a AND s.c = r.c
""")

INEQUALITIES = _queries("""
-- one_sided
SELECT COUNT(*) AS n, SUM(r.a * s.b) AS total FROM r, s WHERE r.c > s.c
-- band
SELECT r.b, COUNT(*) AS n, SUM(s.d) AS total FROM r, s WHERE s.b BETWEEN r.b - 1 AND r.b + 1 GROUP BY r.b
-- offset
SELECT COUNT(*) AS n FROM r, s WHERE r.a >= 2 * s.c - 1 AND r.b <> s.b
-- either_side
SELECT r.b, SUM(r.c - s.c) AS total FROM r, s WHERE r.a > s.b + 1 OR s.b > r.a + 1 GROUP BY r.b
-- either_source
SELECT COUNT(*) AS n, SUM(r.c) AS total FROM r, s WHERE r.a > 1 OR s.c < 1 OR r.b = s.b
-- not_between
SELECT COUNT(*) AS n FROM r, s WHERE NOT (r.a BETWEEN s.b AND s.c)
-- self_inequality
SELECT x.b, SUM(x.c) AS total, COUNT(*) AS n FROM r x, r y WHERE x.b = y.b AND x.a > y.a GROUP BY x.b
-- decimal_bound
SELECT COUNT(*) AS n FROM s, fine f WHERE 0.5 * s.d > f.amount - f.rate
-- double_bound
SELECT COUNT(*) AS n, SUM(p.y) AS total FROM u p, r WHERE p.x >= r.a AND p.y < r.c
""")

SUBQUERIES = _queries("""
-- above_total
SELECT a, COUNT(*) AS n FROM r WHERE c > (SELECT SUM(s.b) FROM s) GROUP BY a
-- above_mean
SELECT b, SUM(c) AS total FROM r WHERE c >= (SELECT AVG(x.c) FROM r x) GROUP BY b
-- correlated
SELECT b, SUM(c) AS total FROM r WHERE a < (SELECT SUM(s.c) FROM s WHERE s.b = r.b) GROUP BY b
-- correlated_coalesced
SELECT b, COUNT(*) AS n FROM r WHERE a <= (SELECT COALESCE(SUM(s.c), 0) FROM s WHERE s.b = r.b) GROUP BY b
-- correlated_self
SELECT b, SUM(c) AS total FROM r WHERE a >= (SELECT AVG(x.a) FROM r x WHERE x.b = r.b) GROUP BY b
-- correlated_inequality
SELECT SUM(c) AS total, COUNT(*) AS n FROM r WHERE b < (SELECT SUM(x.b) FROM r x WHERE x.a > r.a)
-- correlated_both
SELECT b, SUM(c) AS total FROM r WHERE 2 > (SELECT COUNT(*) FROM s WHERE s.b = r.b AND s.c <= r.a) GROUP BY
    b
-- correlated_expression
SELECT COUNT(*) AS n FROM r WHERE (SELECT SUM(s.c - r.a) FROM s WHERE s.b = r.b + 1) > r.c
-- exists_by_count
SELECT a, COUNT(*) AS n FROM r WHERE (SELECT COUNT(*) FROM s WHERE s.b = r.b) > 0 GROUP BY a
-- not_exists_by_count
SELECT a, b FROM r WHERE (SELECT COUNT(*) FROM s WHERE s.b = r.b AND s.c = r.a) = 0
-- best_level
SELECT symbol, price, SUM(volume) AS volume FROM bids b WHERE (SELECT COUNT(*) FROM bids x WHERE x.symbol =
    b.symbol AND x.price > b.price) = 0 GROUP BY symbol, price
-- nested_twice
SELECT COUNT(*) AS n, SUM(a) AS total FROM r WHERE c > (SELECT SUM(s.b) FROM s WHERE s.c < (SELECT SUM(x.a)
    FROM r x WHERE x.b = s.b))
-- nested_twice_correlated
SELECT b, COUNT(*) AS n FROM r WHERE a <= (SELECT COUNT(*) FROM s WHERE s.b = r.b AND s.c > (SELECT COUNT(*)
    FROM fine f WHERE f.id = s.b AND f.amount > r.c)) GROUP BY b
-- in_aggregate
SELECT b, SUM(a * (SELECT SUM(s.d) FROM s WHERE s.b = r.b)) AS total FROM r GROUP BY b
-- in_aggregate_coalesced
SELECT SUM(COALESCE((SELECT SUM(s.c) FROM s WHERE s.c > r.a), 5) + b) AS total FROM r
-- in_select_of_groups
SELECT b, SUM(c) / (SELECT SUM(x.c) FROM r x) AS share, (SELECT COUNT(*) FROM s WHERE s.b = r.b) AS n FROM r
    GROUP BY b
-- in_select_of_total
SELECT SUM(a) - (SELECT SUM(c) FROM s) AS x, COALESCE((SELECT AVG(d) FROM s), 0) AS y FROM r
-- in_select_inequality
SELECT a, COUNT(*) AS n, (SELECT SUM(s.d) FROM s WHERE s.c <= r.a) AS below FROM r GROUP BY a
-- two_subqueries
SELECT COUNT(*) AS n FROM r WHERE (SELECT SUM(s.c) FROM s WHERE s.b = r.b) = (SELECT SUM(x.a) FROM r x WHERE
    x.b = r.b)
-- either_subquery
SELECT b, COUNT(*) AS n FROM r WHERE a > (SELECT SUM(s.c) FROM s) OR c < (SELECT COUNT(*) FROM s WHERE s.b =
    r.b) GROUP BY b
-- not_subquery
SELECT b, COUNT(*) AS n FROM r WHERE NOT (a > (SELECT SUM(s.c) FROM s WHERE s.b = r.b)) GROUP BY b
-- subquery_over_join
SELECT b, COUNT(*) AS n FROM r WHERE c > (SELECT SUM(s.c * x.b) FROM s, r x WHERE s.b = x.b AND x.a = r.a)
    GROUP BY b
""")

DERIVED = _queries("""
-- derived_plain
SELECT d.x, COUNT(*) AS n FROM (SELECT a + b AS x, c FROM r WHERE b > 0) d WHERE d.c > d.x GROUP BY d.x
-- derived_groups
SELECT d.total, COUNT(*) AS n FROM (SELECT a, SUM(c) AS total FROM r GROUP BY a) d GROUP BY d.total
-- derived_filtered
SELECT d.a, d.total FROM (SELECT a, SUM(c) AS total, COUNT(*) AS n FROM r GROUP BY a) d WHERE d.total > 1
    AND d.n < 4
-- derived_total
SELECT d.n + 1 AS m, d.total FROM (SELECT COUNT(*) AS n, SUM(c) AS total FROM r) d WHERE d.n > 1
-- derived_joined
SELECT s.c, SUM(d.total * s.d) AS total FROM s, (SELECT b, SUM(c) AS total FROM r GROUP BY b) d WHERE d.b =
    s.b GROUP BY s.c
-- derived_twice
SELECT p.b, p.n - q.n AS gap FROM (SELECT b, COUNT(*) AS n FROM r GROUP BY b) p, (SELECT b, COUNT(*) AS n
    FROM s GROUP BY b) q WHERE p.b = q.b
-- derived_mean_of_sums
SELECT AVG(d.total) AS mean, SUM(d.total) AS total, COUNT(*) AS n FROM (SELECT a, SUM(c) AS total FROM r
    GROUP BY a) d
-- derived_nested
SELECT e.n, COUNT(*) AS m FROM (SELECT d.t, COUNT(*) AS n FROM (SELECT a, SUM(b) AS t FROM r GROUP BY a) d
    GROUP BY d.t) e GROUP BY e.n
-- derived_by_expression
SELECT d.g, d.n FROM (SELECT a + b AS g, COUNT(*) AS n FROM r GROUP BY a + b) d WHERE d.g > 0
-- derived_in_subquery
SELECT COUNT(*) AS n FROM r WHERE c > (SELECT SUM(d.m) FROM (SELECT b, COUNT(*) AS m FROM s GROUP BY b) d
    WHERE d.b <= r.b)
-- derived_inequality
SELECT COUNT(*) AS n, SUM(d.total) AS total FROM r, (SELECT b, SUM(c) AS total FROM s GROUP BY b) d WHERE
    r.a > d.total
-- derived_nullable_key
SELECT d.a, s.d FROM (SELECT a, COUNT(*) AS n FROM r GROUP BY a) d, s WHERE d.a = s.c AND d.n > 1
-- derived_bound
SELECT COUNT(*) AS n FROM s x, (SELECT y.b AS b FROM s y GROUP BY y.b) d WHERE d.b <> x.d
-- derived_count_joined
SELECT s.c + s.b AS g, SUM(s.d) AS total FROM s, (SELECT COUNT(a) AS n FROM r) d WHERE s.c = d.n
    GROUP BY s.c + s.b
-- derived_cross
SELECT d.b, d.n / e.total AS share FROM (SELECT b, COUNT(*) AS n FROM r GROUP BY b) d, (SELECT COUNT(*) AS
    total FROM r) e
""")

VIEWS_ON_VIEWS = _queries("""
-- view_filters_view
CREATE VIEW levels AS SELECT symbol, price, SUM(volume) AS volume FROM bids GROUP BY symbol, price;
CREATE VIEW deep AS SELECT symbol, price FROM levels WHERE volume > 3
-- view_aggregates_view
CREATE VIEW by_a AS SELECT a, SUM(c) AS total, COUNT(*) AS n FROM r GROUP BY a;
CREATE VIEW counts AS SELECT n, COUNT(*) AS m, SUM(total) AS total FROM by_a GROUP BY n
-- view_joins_view
CREATE VIEW totals AS SELECT b, SUM(c) AS total FROM r GROUP BY b;
CREATE VIEW pairs AS SELECT p.b AS b, q.b AS other FROM totals p, totals q WHERE p.total > q.total
-- view_of_plain_view
CREATE VIEW positive AS SELECT a, b FROM r WHERE a > 0;
CREATE VIEW sums AS SELECT a, SUM(b) AS total FROM positive GROUP BY a;
CREATE VIEW top AS SELECT a FROM sums WHERE total > 1
-- view_in_subquery
CREATE VIEW totals AS SELECT b, SUM(c) AS total FROM r GROUP BY b;
CREATE VIEW above AS SELECT b FROM totals WHERE total > (SELECT AVG(t.total) FROM totals t)
""")

PARAMETERS = {
    "parameters": (
        "SELECT b, SUM(c) * :factor AS total FROM r WHERE a > :low AND b <> :other GROUP BY b",
        {"factor": Decimal("0.5"), "low": 0, "other": 2},
    ),
    "text_parameter": ("SELECT k, COUNT(*) AS n FROM u WHERE label = :label GROUP BY k", {"label": "it's"}),
}

# Never left out of a sample.
WERE_WRONG = frozenset(_queries(FOUND))

CATALOGUE: tuple[Entry, ...] = (
    *(
        _entry(BOOKS + TABLES, name, query)
        for group in (
            AGGREGATES,
            CONDITIONS,
            PLAIN,
            JOINS,
            INEQUALITIES,
            SUBQUERIES,
            DERIVED,
            VIEWS_ON_VIEWS,
            *map(_queries, (FINANCE, *LANGUAGE, COSTS, PREDICATES, QUERIES, WINDOWS, RANKS, FOUND)),
        )
        for name, query in group.items()
    ),
    *(_entry(BOOKS, name, query, parameters={"k": k}, domains=LEVELS) for name, (query, k) in VWAP.items()),
    _entry(BOOKS, "sobi", SOBI, parameters={"k": Decimal("0.25")}, domains=LEVELS),
    _entry(
        TABLES,
        "coalesced_product",
        "SELECT COALESCE(SUM(a) * (SUM(c) + 5), 0) AS x, COALESCE(SUM(c) * SUM(a), 0) AS y FROM r",
        domains={"r": {"a": (1, None), "c": (None, None, 1)}},
    ),
    *(_entry(LADDER, name, query) for name, query in DENSE.items()),
    *(_entry(NULLS, name, query, domains=NULLS_DOMAINS) for name, query in NULL_VIEWS.items()),
    *(_entry(TABLES, name, query) for name, query in _queries(EVERYDAY + ORDINARY + MACROS).items()),
    *(
        _entry(TEXTS, name, query, domains=TEXTS_DOMAINS)
        for name, query in _queries(TEXT_VIEWS + ORDINARY_TEXTS).items()
    ),
    *(
        _entry(TRADING_SCHEMA, name, query, domains=TRADING_DOMAINS)
        for name, query in _queries(TRADING).items()
    ),
    *(_entry(PAPERS, name, query) for name, query in _queries(PAPER_QUERIES).items()),
    *(_entry(TABLES, name, query, parameters=parameters) for name, (query, parameters) in PARAMETERS.items()),
)
